using System;
using System.Linq;
using EchoTrain;

/// The scenario of scenario.c in C#.
public static class Scenario
{
    private static Pipeline MakePipeline(string pattern, bool training)
    {
        var pipeline = new Pipeline(new { seed = 5, threads = 2 })
            .Add(Stages.Webdataset(pattern), Stages.Take(training ? 1024 : 300))
            .Add(Stages.Label(classes: 10), Stages.Decode());
        if (training) pipeline.Add(Stages.Echo(2.5, buffer: 200), Stages.RandomCrop(pad: 2));
        return pipeline.Add(Stages.Batch(64, dropRemainder: training), Stages.Normalize());
    }

    private static Trainer MakeTrainer(Device device)
    {
        var model = new Model(Layers.Conv2d(8, activation: "relu"), Layers.MaxPool(), Layers.Flatten(), Layers.Dense(10));
        return new Trainer(device, model, Optimizers.Sgd(momentum: 0.9), 0.05, seed: 3);
    }

    private static void PrintBits(string what, double value) =>
        Console.WriteLine(what + " " + BitConverter.DoubleToInt64Bits(value).ToString("x16"));

    private static void TakeResults(Trainer trainer, bool wait)
    {
        for (Step r = trainer.Result(wait); r != null; r = trainer.Result(wait)) PrintBits("loss", r.Loss);
    }

    private static void TrainEpoch(Trainer trainer, Pipeline pipeline)
    {
        foreach (Batch batch in pipeline)
        {
            trainer.Step(batch);
            TakeResults(trainer, false);
        }
        TakeResults(trainer, true);
    }

    public static void Main(string[] arguments)
    {
        var device = new Device(Environment.GetEnvironmentVariable("ECHOTRAIN_TEST_DEVICE") ?? "");
        string position;
        using (var pipeline = MakePipeline(arguments[0], true))
        using (var trainer = MakeTrainer(device))
        {
            TrainEpoch(trainer, pipeline);
            trainer.Save(arguments[2]);
            position = pipeline.Save();
        }
        using (var pipeline = MakePipeline(arguments[0], true))
        using (var test = MakePipeline(arguments[1], false))
        using (var trainer = MakeTrainer(device))
        {
            pipeline.Restore(position);
            trainer.Load(arguments[2]);
            TrainEpoch(trainer, pipeline);
            Scores scores = trainer.Evaluate(test);
            PrintBits("eval_loss", scores.Loss);
            PrintBits("eval_accuracy", scores.Accuracy);
            using (Batch batch = test.Next())
            using (Batch outputs = trainer.Predict(batch))
                foreach (float logit in outputs.ToArray<float>("output").Take(10)) PrintBits("logit", logit);
        }
    }
}
