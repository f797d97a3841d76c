"""All that is modelled, by the names that the command line takes."""

from . import cell, channel, eventcount, mutations, rules, scenarios, workqueue
from .protocol import Mutation, ProtocolModels

RING = ProtocolModels("ring", rules.PROTOCOL, scenarios.SCENARIOS, mutations.MUTATIONS)
EVENTCOUNT = ProtocolModels("eventcount", eventcount.PROTOCOL, eventcount.SCENARIOS, eventcount.MUTATIONS)
CHANNEL = ProtocolModels("channel", channel.PROTOCOL, channel.SCENARIOS, channel.MUTATIONS)
WORKQUEUE = ProtocolModels("workqueue", workqueue.PROTOCOL, workqueue.SCENARIOS, workqueue.MUTATIONS)
RECORDS = ProtocolModels("records", cell.PROTOCOL, cell.SCENARIOS, cell.MUTATIONS)
PROTOCOLS = (RING, EVENTCOUNT, CHANNEL, WORKQUEUE, RECORDS)

BY_SCENARIO: dict[str, ProtocolModels] = {name: model for model in PROTOCOLS for name in model.scenarios}
MUTATIONS: dict[str, Mutation] = {name: mutation for model in PROTOCOLS for name, mutation in model.mutations.items()}
