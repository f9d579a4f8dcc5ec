"""PyTorch eager training: forward, backward, fused AdamW, mixed precision with a loss scale."""

from program import finish, rounds
from torch_setting import convolutions, images, pinned, tensor_digest

torch = pinned()


def main():
    model = convolutions()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cuda")
    losses = []
    for index in rounds():
        for part in range(3):
            x = images(index * 3 + part)
            target = torch.arange(16, device="cuda") % 10
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.float16, enabled=part == 0):
                loss = torch.nn.functional.cross_entropy(model(x), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach().float())
        torch.cuda.synchronize()
    weights = torch.cat([p.flatten() for p in model.parameters()])
    finish({"losses": tensor_digest(torch.stack(losses)), "weights": tensor_digest(weights)})


main()
