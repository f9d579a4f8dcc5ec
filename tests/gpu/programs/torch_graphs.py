"""PyTorch's CUDA graphs: captured by hand and by torch.compile
(reduce-overhead), replayed among eager work."""

from program import finish, rounds
from torch_setting import convolutions, images, pinned, tensor_digest

torch = pinned()


def captured(model, x):
    """A graph of one inference, and where it leaves its output."""
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = model(x)
    return graph, output


def main():
    model = convolutions().eval()
    x = images(0)
    with torch.no_grad():
        graph, output = captured(model, x)
        layer = torch.nn.Linear(64, 64).cuda()
        compiled = torch.compile(lambda t: torch.tanh(layer(t)), mode="reduce-overhead")
        state = torch.ones(32, 64, device="cuda")
        total = torch.zeros_like(output)
        for index in rounds():
            x.copy_(images(index))
            for _ in range(4):
                graph.replay()
                total += output
                x.mul_(0.9)
            state = compiled(state).clone()
            torch.cuda.synchronize()
    finish({"total": tensor_digest(total), "state": tensor_digest(state)})


main()
