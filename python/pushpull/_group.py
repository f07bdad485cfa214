"""Settings of some tensors: what `attach` takes as groups."""
import fnmatch


class Group:
    """Settings of the tensors whose names fit a pattern. Of several groups the first that fits decides."""

    def __init__(self, pattern, lr=None, weight_decay=None):
        self.pattern, self.lr, self.weight_decay = pattern, lr, weight_decay

    def fits(self, name):
        return fnmatch.fnmatchcase(name, self.pattern)


def group(pattern, lr=None, weight_decay=None):
    """Returns a group for `attach`.

    pattern: of names, with * and ?, such as "*.bias".
    lr: learning rate in place of the job's; the job's schedule multiplies it.
    weight_decay: in place of the job's weight-decay.
    """
    return Group(pattern, lr, weight_decay)
