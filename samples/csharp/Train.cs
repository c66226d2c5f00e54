// Trains a small classifier on a folder of class folders with PNGs:
//
//   mcs -r:EchoTrain.dll Train.cs && mono Train.exe FOLDER
using System;
using EchoTrain;

public static class Train
{
    public static int Main(string[] arguments)
    {
        if (arguments.Length != 1)
        {
            Console.Error.WriteLine("usage: Train FOLDER   (FOLDER/CLASS/*.png)");
            return 2;
        }
        try
        {
            using (var pipeline = new Pipeline(new { seed = 1 })
                .Add(Stages.Folder(arguments[0]), Stages.Label(classes: 10), Stages.Decode(channels: "gray"))
                .Add(Stages.Echo(2, buffer: 500), Stages.RandomCrop(pad: 2))
                .Add(Stages.Batch(32), Stages.Normalize()))
            using (var trainer = new Trainer(new Device(),
                new Model(Layers.Conv2d(8, activation: "relu"), Layers.MaxPool(), Layers.Flatten(), Layers.Dense(10)),
                Optimizers.Sgd(momentum: 0.9), learningRate: 0.02, seed: 1))
            {
                Console.WriteLine("device: " + trainer.Device.Name);
                long batches = pipeline.Length ?? 0;  // a folder's is known; that of shards after an epoch
                trainer.StepEnded += (sender, e) =>
                {
                    if (e.Step.Number % 10 == 0)
                        Console.Error.Write("\repoch {0}: step {1} of {2}, loss {3:F3} ", e.Epoch + 1,
                            e.Step.Number - e.Epoch * batches, batches, e.Step.Loss);
                };
                trainer.EpochEnded += (sender, e) => Console.WriteLine(
                    "epoch {0}: loss {1:F3}, accuracy {2:P1}", e.Epoch + 1, e.Training.Loss, e.Training.Accuracy);
                trainer.Fit(pipeline, epochs: 3);
            }
            return 0;
        }
        catch (EchoTrainException error)
        {
            Console.Error.WriteLine(error.Code + ": " + error.Message);
            return 1;
        }
    }
}
