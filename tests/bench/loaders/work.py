"""The same work in every loader's own terms: decode, random resized crop, flip, normalise, batches of 64, two threads or workers.

Each function returns one that begins an epoch and gives something per batch that has looked at the batch's first value.
Written as each loader's documentation teaches, in what it offers to be fast: fused decode-and-crop, threads rather than
processes where the loader prefers them, batches made where they are cheap.
"""

import functools
import glob
import io
import os
import typing

BATCH, THREADS, MEAN, STD = 64, 2, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SHARDS = 8  # tar files of a case


class Case(typing.NamedTuple):
    root: str  # with files/LABEL/NAME.KIND, shards/NUMBER.tar and, for FFCV, images.beton
    size: int
    tar: bool
    kind: str  # png, jpg

    @property
    def folder(self):
        return os.path.join(self.root, "files")

    def shards(self):
        return sorted(glob.glob(os.path.join(self.root, "shards", "*.tar")))

    def files(self):
        return sorted(glob.glob(os.path.join(self.folder, "*", "*")))


def echotrain(case):
    import echotrain as et
    s = et.stages
    source = (s.webdataset(os.path.join(case.root, "shards", "*.tar")), s.shuffle(256, initial=100)) if case.tar else (s.folder(case.folder),)
    pipeline = et.Pipeline([*source, s.label(), s.decode(channels="rgb"),
                            s.random_resized_crop(height=case.size, width=case.size), s.flip(), s.batch(BATCH),
                            s.normalize(mean=MEAN, std=STD)], threads=THREADS)
    return lambda: (batch["image"].item(0) for batch in pipeline)


def pil_work(case):
    from torchvision import transforms
    return transforms.Compose([transforms.RandomResizedCrop(case.size), transforms.RandomHorizontalFlip(),
                               transforms.ToTensor(), transforms.Normalize(MEAN, STD)])


def pytorch(case):
    import tarfile

    import torch
    from PIL import Image
    from torchvision import datasets
    torch.set_num_threads(1)

    class Shards(torch.utils.data.IterableDataset):
        def __iter__(self):
            work, worker, image = pil_work(case), torch.utils.data.get_worker_info(), None
            for shard in case.shards()[worker.id::worker.num_workers]:
                with tarfile.open(shard) as tar:
                    for member in tar:
                        data = tar.extractfile(member).read()
                        if member.name.endswith("cls"):
                            yield work(Image.open(io.BytesIO(image)).convert("RGB")), int(data)
                        else:
                            image = data

    data = Shards() if case.tar else datasets.ImageFolder(case.folder, pil_work(case))
    loader = torch.utils.data.DataLoader(data, BATCH, shuffle=None if case.tar else True, drop_last=True,
                                         num_workers=THREADS, persistent_workers=True)
    return lambda: (image[0, 0, 0, 0].item() for image, label in loader)


def webdataset(case):
    import torch
    import webdataset as wds
    torch.set_num_threads(1)
    data = wds.WebDataset(case.shards(), shardshuffle=SHARDS, empty_check=False).shuffle(256).decode("pilrgb")
    data = data.to_tuple(case.kind, "cls").map_tuple(pil_work(case), int).batched(BATCH, partial=False)
    loader = wds.WebLoader(data, batch_size=None, num_workers=THREADS, persistent_workers=True)
    return lambda: (image[0, 0, 0, 0].item() for image, label in loader)


def tf_data(case):
    import tensorflow as tf
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    mean, std = tf.constant(MEAN) * 255, tf.constant(STD) * 255

    def work(path):
        data = tf.io.read_file(path)
        shape = tf.io.extract_jpeg_shape(data) if case.kind == "jpg" else None
        image = None if case.kind == "jpg" else tf.io.decode_png(data, 3)
        begin, length, _ = tf.image.sample_distorted_bounding_box(
            tf.shape(image) if shape is None else shape, tf.zeros([0, 0, 4]), area_range=(0.08, 1.0),
            aspect_ratio_range=(3 / 4, 4 / 3), use_image_if_no_bounding_boxes=True)
        if shape is None:
            image = tf.slice(image, begin, length)
        else:
            window = tf.stack([begin[0], begin[1], length[0], length[1]])
            image = tf.image.decode_and_crop_jpeg(data, window, channels=3, dct_method="INTEGER_FAST")
        image = tf.image.resize(image, [case.size, case.size], antialias=True)
        return (tf.image.random_flip_left_right(image) - mean) / std

    data = tf.data.Dataset.from_tensor_slices(case.files()).shuffle(100000).map(work, num_parallel_calls=THREADS)
    data = data.batch(BATCH, drop_remainder=True).prefetch(2)
    return lambda: (float(image[0, 0, 0, 0]) for image in data)


def grain(case):
    import random

    import grain.python
    import numpy as np
    from PIL import Image
    mean, std = np.float32(MEAN) * 255, np.float32(STD) * 255

    def work(path, rng):
        image = Image.open(path).convert("RGB")
        width, height = image.size
        for _ in range(10):
            area, ratio = width * height * rng.uniform(0.08, 1), np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
            w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if w <= width and h <= height:
                break
        else:
            w, h = width, height
        x, y = rng.integers(width - w + 1), rng.integers(height - h + 1)
        image = np.asarray(image.resize((case.size, case.size), Image.BILINEAR, (x, y, x + w, y + h)), np.float32)
        return ((image[:, ::-1] if rng.random() < 0.5 else image) - mean) / std

    data = grain.python.MapDataset.source(case.files()).seed(1).shuffle().random_map(work).batch(BATCH, drop_remainder=True)
    data = data.to_iter_dataset(grain.python.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2))
    return lambda: (image[0, 0, 0, 0].item() for image in data)


def spdl(case):
    import random

    import numpy as np
    import spdl.io
    import spdl.pipeline
    mean, std = np.float32(MEAN) * 255, np.float32(STD) * 255

    def decode(source):
        packets = spdl.io.demux_image(source)
        # FFmpeg's crop filter knows no aspect ratio of its own choosing: the window is drawn here.
        area, ratio = random.uniform(0.08, 1), random.uniform(3 / 4, 4 / 3)
        w, h = min(1, (area * ratio) ** 0.5), min(1, (area / ratio) ** 0.5)
        x, y = random.uniform(0, 1 - w), random.uniform(0, 1 - h)
        flip = ",hflip" if random.random() < 0.5 else ""
        return spdl.io.decode_packets(packets, filter_desc=(
            f"crop=iw*{w}:ih*{h}:iw*{x}:ih*{y},scale={case.size}:{case.size}:flags=bilinear{flip},format=pix_fmts=rgb24"))

    def collate(frames):
        return (spdl.io.to_numpy(spdl.io.convert_frames(frames)) - mean) / std

    def from_shards():
        for shard in case.shards():
            with open(shard, "rb") as file:
                yield from (data for name, data in spdl.io.iter_tarfile(file) if not name.endswith("cls"))

    def epoch():
        names = case.files()
        random.shuffle(names)
        builder = spdl.pipeline.PipelineBuilder().add_source(from_shards() if case.tar else names)
        builder = builder.pipe(decode, concurrency=THREADS).aggregate(BATCH, drop_last=True).pipe(collate).add_sink(2)
        pipeline = builder.build(num_threads=THREADS)
        with pipeline.auto_stop():
            for image in pipeline:
                yield image[0, 0, 0, 0].item()

    return epoch


def dali(case):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=THREADS, device_id=None, prefetch_queue_depth=2)
    def make():
        if case.tar:
            data, label = fn.readers.webdataset(paths=case.shards(), index_paths=[s + ".idx" for s in case.shards()],
                                                ext=[case.kind, "cls"], random_shuffle=True, initial_fill=256, name="reader")
        else:
            data, label = fn.readers.file(file_root=case.folder, random_shuffle=True, initial_fill=256, name="reader")
        image = fn.decoders.image_random_crop(data, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0],
                                              random_aspect_ratio=[3 / 4, 4 / 3])
        image = fn.resize(image, device="cpu", resize_x=case.size, resize_y=case.size)
        return fn.crop_mirror_normalize(image, device="cpu", dtype=types.FLOAT, output_layout="HWC",
                                        mean=[m * 255 for m in MEAN], std=[s * 255 for s in STD],
                                        mirror=fn.random.coin_flip()), label

    pipeline = make()
    pipeline.build()
    batches = len(case.files()) // BATCH

    def epoch():
        for _ in range(batches):
            image, label = pipeline.run()
            yield float(image.at(0)[0, 0, 0])

    return epoch


def ffcv(case):
    import numpy as np
    from ffcv.fields.decoders import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
    image = [RandomResizedCropRGBImageDecoder((case.size, case.size)), RandomHorizontalFlip(),
             NormalizeImage(np.float32(MEAN) * 255, np.float32(STD) * 255, np.float32), ToTensor(), ToTorchImage()]
    loader = Loader(os.path.join(case.root, "images.beton"), batch_size=BATCH, num_workers=THREADS, os_cache=True,
                    order=OrderOption.RANDOM, drop_last=True, pipelines={"image": image, "label": None})
    return lambda: (batch[0][0, 0, 0, 0].item() for batch in loader)


def write_beton(case):
    """FFCV reads a format of its own: the same JPEGs' pixels, compressed again at the same quality."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    from PIL import Image

    class Files:
        names = case.files()

        def __len__(self):
            return len(self.names)

        def __getitem__(self, index):
            return Image.open(self.names[index]).convert("RGB"), int(os.path.basename(os.path.dirname(self.names[index])))

    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
    DatasetWriter(os.path.join(case.root, "images.beton"), fields, num_workers=1).from_indexed_dataset(Files())


class Loader(typing.NamedTuple):
    make: typing.Callable
    modules: tuple  # that must be there; imported before the clock runs
    install: str
    reads: typing.Callable = lambda case: True  # the cases it can read
    prepare: typing.Callable = None


LOADERS = {
    "echotrain": Loader(echotrain, ("echotrain",), ""),
    "PyTorch": Loader(pytorch, ("torchvision",), "apt install python3-torch python3-torchvision"),
    "WebDataset": Loader(webdataset, ("webdataset", "torchvision"), "pip install webdataset", lambda case: case.tar),
    "tf.data": Loader(tf_data, ("tensorflow",), "pip install tensorflow-cpu", lambda case: not case.tar),
    "Grain": Loader(grain, ("grain.python", "PIL.Image"), "pip install grain", lambda case: not case.tar),
    "SPDL": Loader(spdl, ("spdl.io", "spdl.pipeline"), "pip install spdl; apt install libavfilter8 libavdevice59"),
    "DALI": Loader(dali, ("nvidia.dali",), "pip install nvidia-dali-cuda120 (runs on the CPU alone)"),
    "FFCV": Loader(ffcv, ("ffcv",), "apt install libopencv-dev libturbojpeg0-dev; pip install ffcv",
                   lambda case: not case.tar and case.kind == "jpg", write_beton),
}
