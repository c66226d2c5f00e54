// A generative adversarial network (Goodfellow et al. 2014) that learns to draw points from a ring of eight clusters,
// in a training loop of its own: the discriminator is trained by whole steps, the generator pass by pass, through the
// discriminator.
//
//   mcs -r:EchoTrain.dll Gan.cs && mono Gan.exe [STEPS]
using System;
using System.Linq;
using EchoTrain;

public sealed class Gan
{
    const int Clusters = 8, Noise = 16, BatchSize = 256;
    const double Radius = 2, Spread = 0.1;

    readonly Random random = new Random(1);

    // A normally distributed number, by the method of Box and Muller.
    double Normal() => Math.Sqrt(-2 * Math.Log(1 - random.NextDouble())) * Math.Cos(2 * Math.PI * random.NextDouble());

    static double Centre(int cluster, int axis)
    {
        double angle = 2 * Math.PI * cluster / Clusters;
        return Radius * (axis == 0 ? Math.Cos(angle) : Math.Sin(angle));
    }

    Batch NoiseOf(int count)
    {
        var values = Enumerable.Range(0, count * Noise).Select(_ => (float)Normal()).ToArray();
        return new Batch().Set("noise", values, count, Noise);
    }

    // The x and y of `count` points, one after another.
    float[] RealPoints(int count)
    {
        var points = new float[2 * count];
        for (int i = 0; i < count; ++i)
        {
            int cluster = random.Next(Clusters);
            for (int axis = 0; axis < 2; ++axis)
                points[2 * i + axis] = (float)(Centre(cluster, axis) + Spread * Normal());
        }
        return points;
    }

    static Model Network(string field, int outputs, string loss) =>
        new Model(new[] { field }, Layers.Dense(64, activation: "relu"), Layers.Dense(64, activation: "relu"),
            Layers.Dense(outputs)).Loss(loss);

    // Says which share of the points lies within four standard deviations of a cluster, and how many clusters have at
    // least 2 % of the points.
    static string Quality(float[] points)
    {
        int count = points.Length / 2;
        var near = Enumerable.Range(0, Clusters).Select(c => Enumerable.Range(0, count).Count(i =>
        {
            double x = points[2 * i] - Centre(c, 0), y = points[2 * i + 1] - Centre(c, 1);
            return Math.Sqrt(x * x + y * y) < 4 * Spread;
        })).ToArray();
        return string.Format("{0,3} % of the points near a cluster, {1} of {2} clusters", 100 * near.Sum() / count,
            near.Count(n => 50 * n >= count), Clusters);
    }

    void Train(int steps)
    {
        float[] isReal = Enumerable.Range(0, 2 * BatchSize).Select(i => i < BatchSize ? 1f : 0f).ToArray();
        var adam = Optimizers.Adam(beta1: 0.5);
        using (var device = new Device())
        using (var generator = new Trainer(device, Network("noise", 2, "mse"), adam, 1e-3, seed: 1))
        using (var discriminator =
            new Trainer(device, Network("point", 1, "binary_cross_entropy"), adam, 1e-3, seed: 2))
            for (int step = 1; step <= steps; ++step)
            {
                // Noise in front of the discriminator, less and less of it, keeps the generator from covering a single
                // cluster (Sønderby et al. 2017).
                double blur = Math.Max(0.1, 1 - step / (0.8 * steps));
                float[] both;  // the real points, then the generated ones
                using (var noise = NoiseOf(BatchSize))
                using (var drawn = generator.Forward(noise))
                    both = RealPoints(BatchSize).Concat(drawn.ToArray<float>("output"))
                        .Select(value => value + (float)(blur * Normal())).ToArray();

                double loss;
                using (var labelled = new Batch().Set("point", both, 2 * BatchSize, 2)
                                                 .Set("label", isReal, 2 * BatchSize, 1))
                {
                    discriminator.Step(labelled);
                    loss = discriminator.Result().Loss;
                }
                // The generator's loss is -log sigmoid(score), averaged over the batch: it wants its points to be taken
                // as real.
                float[] points = both.Skip(2 * BatchSize).ToArray();
                using (var generated = new Batch().Set("point", points, BatchSize, 2))
                using (var scores = discriminator.Forward(generated, inputGradients: true))
                using (var scoreGradient = new Batch().Set("output", scores.ToArray<float>("output")
                    .Select(score => (float)((1 / (1 + Math.Exp(-score)) - 1) / BatchSize)).ToArray(), BatchSize, 1))
                using (var inputs = discriminator.BackwardToInputs(scoreGradient))
                using (var pointGradient = new Batch().Set("output", inputs.ToArray<float>("point"), BatchSize, 2))
                {
                    generator.Backward(pointGradient);
                    generator.Update();
                }
                if (step % Math.Max(1, steps / 10) == 0)
                    using (var noise = NoiseOf(2000))
                    using (var drawn = generator.Predict(noise))
                        Console.WriteLine("step {0,5}: discriminator's loss {1:F3}, {2}", step, loss,
                            Quality(drawn.ToArray<float>("output")));
            }
    }

    public static int Main(string[] arguments)
    {
        int steps = 3000;
        if (arguments.Length > 1 || (arguments.Length == 1 && !(int.TryParse(arguments[0], out steps) && steps > 0)))
        {
            Console.Error.WriteLine("usage: Gan [STEPS]");
            return 2;
        }
        try
        {
            new Gan().Train(steps);
            return 0;
        }
        catch (EchoTrainException error)
        {
            Console.Error.WriteLine(error.Code + ": " + error.Message);
            return 1;
        }
    }
}
