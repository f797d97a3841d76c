"""All that is modelled, by the names that the command line takes."""

from . import cell, eventcount, scenarios
from .protocol import Mutation, ProtocolModels

PROTOCOLS = (scenarios.RING, eventcount.EVENTCOUNT_MODELS, cell.RECORDS)

BY_SCENARIO: dict[str, ProtocolModels] = {name: model for model in PROTOCOLS for name in model.scenarios}
MUTATIONS: dict[str, Mutation] = {name: mutation for model in PROTOCOLS for name, mutation in model.mutations.items()}
