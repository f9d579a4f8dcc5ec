"""Training fed by DataLoader workers, forked after CUDA is in use, with pinned memory."""

from program import finish, rounds
from torch_setting import convolutions, pinned, tensor_digest

torch = pinned()


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.rand(3, 64, 64, generator=generator), index % 10


def main():
    model = convolutions()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    total = torch.zeros((), device="cuda")
    loader = None
    for index in rounds():
        if index % 6 == 0:  # new workers, forked from a process that launches
            loader = iter(torch.utils.data.DataLoader(
                Samples(), batch_size=16, num_workers=3, pin_memory=True,
                multiprocessing_context="fork"))
        x, target = next(loader)
        optimizer.zero_grad()
        output = model(x.cuda(non_blocking=True))
        loss = torch.nn.functional.cross_entropy(output, target.cuda(non_blocking=True))
        loss.backward()
        optimizer.step()
        total += loss.detach()
    weights = torch.cat([p.flatten() for p in model.parameters()])
    finish({"loss": tensor_digest(total), "weights": tensor_digest(weights)})


main()
