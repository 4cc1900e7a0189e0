"""Tools that measure how much loss of gradients a model tolerates.

They train in one process and need no job:

    from thalweg.tolerance import Trainer, loss_bound

    print(loss_bound(Trainer(make_model, (inputs, answers), test, rounds=300)))
"""

from .dropping import Drop
from .layer_costs import LossCosts, loss_costs
from .loss_bounds import LOSSES, LossBounds, loss_bound
from .trainer import Trainer

__all__ = [
    "Drop",
    "LOSSES",
    "LossBounds",
    "LossCosts",
    "Trainer",
    "loss_bound",
    "loss_costs",
]
