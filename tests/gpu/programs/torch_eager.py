"""PyTorch eager inference: torchvision's ResNet-50, attention, sorting, FFT, a side stream."""

from program import finish, rounds
from torch_setting import images, pinned, tensor_digest

torch = pinned()


def main():
    import torchvision
    model = torchvision.models.resnet50(weights=None).cuda().eval()
    attention = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True).cuda().eval()
    side = torch.cuda.Stream()
    sums = {"resnet": 0, "attention": 0, "fft": 0, "sort": 0}
    with torch.inference_mode():
        for index in rounds():
            x = images(index, 4)
            sums["resnet"] = sums["resnet"] + model(x)
            tokens = x.reshape(4, -1, 256)[:, :128]
            sums["attention"] = sums["attention"] + attention(tokens)
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.default_stream())
                spectrum = torch.fft.fft2(x).abs()
                x.record_stream(side)
            torch.cuda.default_stream().wait_stream(side)
            spectrum.record_stream(torch.cuda.default_stream())
            sums["fft"] = sums["fft"] + spectrum
            sums["sort"] = sums["sort"] + torch.sort(x.flatten()).values
            torch.cuda.synchronize()
        finish({name: tensor_digest(value) for name, value in sums.items()})


main()
