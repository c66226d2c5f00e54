"""One run of one loader: one.py LOADER FOLDER SIZE; prints its figures as JSON. See loaders.py."""

import json
import os
import resource
import sys
import time

BATCH, THREADS, MEAN, STD = 64, 2, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def echotrain(folder, size):
    import echotrain as et
    s = et.stages
    pipeline = et.Pipeline([s.folder(folder), s.label(), s.decode(channels="rgb"),
                            s.random_resized_crop(height=size, width=size), s.flip(), s.batch(BATCH),
                            s.normalize(mean=MEAN, std=STD)], threads=THREADS)
    return lambda: (batch["image"].item(0) for batch in pipeline)


def pytorch(folder, size):
    import torch
    from torchvision import datasets, transforms
    torch.set_num_threads(1)
    work = transforms.Compose([transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(),
                               transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    loader = torch.utils.data.DataLoader(datasets.ImageFolder(folder, work), BATCH, shuffle=True, drop_last=True,
                                         num_workers=THREADS, persistent_workers=True)
    return lambda: (image[0, 0, 0, 0].item() for image, label in loader)


def tf_data(folder, size):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    files = [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]
    mean, std = tf.constant(MEAN) * 255, tf.constant(STD) * 255

    def work(path):
        image = tf.io.decode_image(tf.io.read_file(path), 3, expand_animations=False)
        begin, length, _ = tf.image.sample_distorted_bounding_box(
            tf.shape(image), tf.zeros([0, 0, 4]), area_range=(0.08, 1.0), aspect_ratio_range=(3 / 4, 4 / 3),
            use_image_if_no_bounding_boxes=True)
        image = tf.image.resize(tf.slice(image, begin, length), [size, size], antialias=True)
        return (tf.image.random_flip_left_right(image) - mean) / std

    data = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files)).map(work, num_parallel_calls=THREADS)
    data = data.batch(BATCH, drop_remainder=True).prefetch(4)
    return lambda: (float(image[0, 0, 0, 0]) for image in data)


def cpu_seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) + workers()


def workers():
    """CPU time of children that have not ended, which getrusage leaves out."""
    total = 0.0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            if int(fields[1]) == os.getpid():
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            pass
    return total


def main():
    name, folder, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    epoch = {"echotrain": echotrain, "pytorch": pytorch, "tf.data": tf_data}[name](folder, size)
    begin = time.perf_counter()
    batches = epoch()
    next(batches)
    first = time.perf_counter() - begin
    for _ in batches:
        pass
    begin, cpu = time.perf_counter(), cpu_seconds()
    images = BATCH * sum(1 for _ in epoch())
    seconds, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
    peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
    print(json.dumps({"rate": images / seconds, "cpu_ms": 1000 * cpu / images, "first_ms": 1000 * first, "peak_mb": peak}))


if __name__ == "__main__":
    main()
