"""All that is modelled, by the names that the command line takes."""

from . import attention, cell, channel, mutations, rules, scenarios, workqueue
from .protocol import Modelled, Mutation

RING = Modelled("ring", rules.PROTOCOL, scenarios.SCENARIOS, mutations.MUTATIONS)
ATTENTION = Modelled("attention", attention.PROTOCOL, attention.SCENARIOS, attention.MUTATIONS)
CHANNEL = Modelled("channel", channel.PROTOCOL, channel.SCENARIOS, channel.MUTATIONS)
WORKQUEUE = Modelled("workqueue", workqueue.PROTOCOL, workqueue.SCENARIOS, workqueue.MUTATIONS)
RECORDS = Modelled("records", cell.PROTOCOL, cell.SCENARIOS, cell.MUTATIONS)
PROTOCOLS = (RING, ATTENTION, CHANNEL, WORKQUEUE, RECORDS)

BY_SCENARIO: dict[str, Modelled] = {name: each for each in PROTOCOLS for name in each.scenarios}
MUTATIONS: dict[str, Mutation] = {name: found for each in PROTOCOLS for name, found in each.mutations.items()}
