"""A worker of a DataLoader waits for ever in `__getitem__`."""

import threading

from torch.utils.data import DataLoader, Dataset
from training import AT, mark, step


class Samples(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        if index == 4 * AT:
            mark()
            threading.Event().wait()  # worker
        return index


for _ in DataLoader(Samples(), batch_size=4, num_workers=2):  # stands
    step()
