"""What every script needs."""

from torch.utils.data import Dataset

SIZE = 100


class Numbers(Dataset):
    def __len__(self):
        return SIZE


def parse_args(manual):
    return _parser(manual).parse_args()


def report(epoch, total):
    print(epoch, total)


def _parser(manual):
    raise AssertionError(manual)
