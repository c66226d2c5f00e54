using System;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using EchoTrain;

/// Everyday use and misuse of the C# binding. Argument: a folder of class folders with PNGs.
public static partial class Behaviour
{
    private static int passed, failed;
    private static string root;

    private static void Test(string name, Action check)
    {
        try
        {
            check();
            ++passed;
        }
        catch (Exception error)
        {
            ++failed;
            Console.WriteLine("FAILED " + name + "\n" + error);
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ReadOnlyMemory<float> OfABatchThatIsCollected()
    {
        ReadOnlyMemory<float> memory = default(ReadOnlyMemory<float>);
        var thread = new Thread(() =>  // whose stack is gone when it has ended
            memory = new Batch().Set("x", Enumerable.Repeat(7f, 1000).ToArray(), 1000).Memory<float>("x"));
        thread.Start();
        thread.Join();
        return memory;
    }

    private static void Expect(bool condition, object detail)
    {
        if (!condition) throw new Exception("not so: " + detail);
    }

    private static T Fails<T>(Action check) where T : Exception
    {
        try
        {
            check();
        }
        catch (T error)
        {
            return error;
        }
        throw new Exception("expected " + typeof(T));
    }

    private static void FailsWith(ErrorCode code, string text, Action check)
    {
        var error = Fails<EchoTrainException>(check);
        Expect(error.Code == code && error.Message.Contains(text), error.Code + ": " + error.Message);
    }

    private static Pipeline Images(object options = null) =>
        new Pipeline(options ?? new { threads = 2, epochs = 2 })
            .Add(Stages.Folder(root), Stages.Label(), Stages.Decode());

    private static Pipeline Batches(object options = null) => Images(options).Add(Stages.Batch(16), Stages.Normalize());

    private static Device MakeDevice() => new Device(Environment.GetEnvironmentVariable("ECHOTRAIN_TEST_DEVICE") ?? "");

    private static string JobJson() => (
        "{'pipeline': {'stages': [{'stage': 'folder', 'root': '" + root + "'}, {'stage': 'label'}," +
        "{'stage': 'decode'}, {'stage': 'batch', 'size': 16}, {'stage': 'normalize'}]}, 'model': {'layers':" +
        "[{'layer': 'flatten'}, {'layer': 'dense', 'units': 10}]}, 'optimizer': {'optimizer': 'sgd'}," +
        "'schedule': {'learning_rate': 0.01}, 'train': {'steps': 50}}").Replace('\'', '"');

    private static Trainer MakeTrainer() =>
        new Trainer(MakeDevice(), new Model(Layers.Flatten(), Layers.Dense(10)), Optimizers.Sgd(), 0.01, seed: 1);

    private static long Resident() => long.Parse(File.ReadAllText("/proc/self/statm").Split(' ')[1]) * 4096;

    private static Batch leaked;

    public static int Main(string[] arguments)
    {
        root = arguments[0];
        Test("an epoch at a time", () =>
        {
            using (var pipeline = Batches())
            {
                for (int epoch = 0; epoch < 2; ++epoch)
                    Expect(pipeline.Sum(batch => batch.Samples) == 64, epoch);
                Expect(pipeline.Next() == null, "the epochs are over");
                Expect(pipeline.Stats.Contains("\"fresh\":128"), pipeline.Stats);
            }
        });
        Test("spans are views", () =>
        {
            using (var pipeline = Batches())
            {
                Batch batch = pipeline.Next();
                Expect(batch.DType("image") == DType.F32 && batch.Shape("image").Length == 4, batch.DType("image"));
                Expect(batch.Span<float>("image").Length == batch.Shape("image").Aggregate((a, b) => a * b), "length");
                Expect(batch.Span<float>("image").Slice(3, 1).ToArray()[0] == batch.ToArray<float>("image")[3], "values");
                Fails<ArgumentException>(() => batch.ToArray<int>("image"));
                FailsWith(ErrorCode.NotFound, "imag", () => batch.Shape("imag"));
                batch.Dispose();
                batch.Dispose();
                FailsWith(ErrorCode.State, "closed", () => batch.ToArray<float>("image"));
            }
        });
        Test("memory outlives its batch", () =>
        {
            ReadOnlyMemory<float> kept = OfABatchThatIsCollected();
            for (int i = 0; i < 3; ++i)
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
            }
            for (int i = 0; i < 64; ++i)  // whatever has been freed is written over
                using (var other = new Batch()) other.Set("x", new float[1000], 1000);
            Expect(kept.Length == 1000 && kept.ToArray().All(value => value == 7), kept.ToArray().Max());
            using (kept.Slice(3).Pin())
            using (var batch = new Batch().Set("x", new int[0], 0))
            {
                Expect(batch.Memory<int>("x").IsEmpty, "empty");
                Fails<ArgumentException>(() => batch.Memory<float>("x"));
            }
        });
        Test("a loop pass by pass", () =>
        {
            Model model = new Model(new[] { "x" }, Layers.Dense(1), Layers.Dense(1)).Loss("mse").Freeze("dense_1.*");
            using (var trainer = new Trainer(MakeDevice(), model, Optimizers.Sgd(), 0.1, seed: 1))
            using (var input = new Batch())
            using (var ones = new Batch())
            using (var given = new Batch())
            {
                input.Set("x", new float[] { 1, 2, -1, 0.5f, 3, -2 }, 3, 2);
                ones.Set("output", new float[] { 1, 1, 1 }, 3, 1);
                FailsWith(ErrorCode.State, "call forward()", () => trainer.Backward(ones));
                Expect(trainer.Forward(input).ToArray<float>("output").Length == 3, "outputs");
                trainer.Backward(ones);
                Expect(trainer.Gradients("dense_2.bias").ToArray<float>("dense_2.bias")[0] == 3, "a sum");
                trainer.Forward(input, inputGradients: true);
                float[] inputs = trainer.BackwardToInputs(ones, accumulate: true).ToArray<float>("x");
                Expect(inputs.Length == 6 && inputs[0] == inputs[2], "inputs");
                Expect(trainer.Gradients().ToArray<float>("dense_2.bias")[0] == 6, "added");
                given.Set("dense_2.bias", new float[] { 10 }, 1);
                trainer.SetGradients(given);
                float frozen = trainer.Weights().ToArray<float>("dense_1.weight")[0];
                float bias = trainer.Weights().ToArray<float>("dense_2.bias")[0];
                Step step = trainer.Update();
                Expect(step.Number == 1 && step.Samples == 6 && double.IsNaN(step.Loss), step.Samples);
                Expect(Math.Abs(trainer.Weights().ToArray<float>("dense_2.bias")[0] - (bias - 1)) < 1e-6, "updated");
                Expect(trainer.Weights().ToArray<float>("dense_1.weight")[0] == frozen, "frozen");
                FailsWith(ErrorCode.State, "call backward()", () => trainer.Update());
            }
        });
        Test("options of a device", () =>
        {
            foreach (bool trusts in new[] { false, true })
            {
                string folder = Path.Combine(Path.GetTempPath(), Path.GetRandomFileName());
                var device = new Device(Environment.GetEnvironmentVariable("ECHOTRAIN_TEST_DEVICE") ?? "", new DeviceOptions
                    { Tuning = "", Kernels = DeviceKernels.Tiled, CacheDir = folder, TrustDriver = trusts });
                var model = new Model(Layers.Flatten(), Layers.Dense(10));
                using (var pipeline = Batches())
                using (var trainer = new Trainer(device, model, Optimizers.Sgd(), 0.01, seed: 1))
                {
                    device.Dispose();
                    model.Dispose();
                    FailsWith(ErrorCode.State, "the device is closed", () => Expect(device.Name == null, device));
                    Expect(model.ToString() == "Model(closed)", model);
                    trainer.Step(pipeline.Next());
                    trainer.Result(true);
                }  // the device goes, and writes its cache
                bool compared = Directory.Exists(folder) && Directory.GetFiles(folder, "kernels-*").Length > 0;
                Expect(compared != trusts, "what was compared is kept there");
            }
        });
        Test("fields of sixteen bits", () =>
        {
            using (var batch = new Batch())
            {
                batch.Set("x", new ushort[] { 1, 40000, 65535 }, 3);
                Expect(batch.DType("x") == DType.U16, batch.DType("x"));
                Expect(batch.Span<ushort>("x").ToArray()[1] == 40000, batch.ToArray<ushort>("x")[1]);
                Fails<ArgumentException>(() => batch.ToArray<int>("x"));
                Fails<ArgumentException>(() => batch.Set("y", new short[2], 2));
            }
            using (var pipeline = Images().Add(Stages.Cast("u16", scale: true)))
                Expect(pipeline.Next().DType("image") == DType.U16, "decoded");
        });
        Test("wrong options name the nearest", () =>
        {
            FailsWith(ErrorCode.InvalidArgument, "threads", () => Batches(new { thread = 2 }));
            FailsWith(ErrorCode.InvalidArgument, "factor", () => Images().Add(Stages.Echo(2).Set("factr", 3)));
            Fails<ArgumentException>(() => Images().Add(Layers.Flatten()));
            Fails<ArgumentException>(() => Batches(new { threads = new object() }));
        });
        Test("texts with a NUL character inside are refused", () =>
        {
            string cut = root + "/cut\0off";
            using (var trainer = MakeTrainer())
            {
                FailsWith(ErrorCode.InvalidArgument, "NUL character", () => trainer.Save(cut));
                FailsWith(ErrorCode.InvalidArgument, "NUL character", () => trainer.ExportOnnx(cut));
                FailsWith(ErrorCode.InvalidArgument, "NUL character", () => trainer.Load(cut));
            }
            FailsWith(ErrorCode.InvalidArgument, "NUL character", () => Job.Load(cut));
            FailsWith(ErrorCode.InvalidArgument, "NUL character", () => Job.Load("x", cut));
            FailsWith(ErrorCode.InvalidArgument, "option 'root'",
                () => new Pipeline().Add(Stages.Folder(cut), Stages.Label()).Next());
            Expect(!File.Exists(root + "/cut") && !Directory.Exists(root + "/cut"), "nothing is written");
        });
        Test("functions are stages", () =>
        {
            using (var pipeline = Images().Map("double", item =>
            {
                item.Set("twice", new[] { 2 * item.ToArray<int>("label")[0] });
                item.Remove("image");
            }))
            {
                int count = 0;
                foreach (Batch sample in pipeline)
                {
                    Expect(sample.ToArray<int>("twice")[0] == 2 * sample.ToArray<int>("label")[0], count);
                    Expect(!sample.Fields.Contains("image"), "image is gone");
                    ++count;
                }
                Expect(count == 64, count);
            }
        });
        Test("what a function throws is the inner exception", () =>
        {
            using (var pipeline = Images().Map("picky", item =>
            {
                if (item.Ordinal == 20) throw new InvalidDataException("twenty");
            }))
            {
                int before = 0;
                var error = Fails<EchoTrainException>(() => { foreach (Batch sample in pipeline) ++before; });
                Expect(before == 20, before);
                Expect(error.Code == ErrorCode.Callback && error.InnerException is InvalidDataException, error);
                Expect(error.Message.Contains("picky") && error.Message.Contains(".png"), error.Message);
            }
        });
        Test("an item is valid during its call only", () =>
        {
            using (var pipeline = Images().Map("leak", item => leaked = item))
            {
                foreach (Batch sample in pipeline) sample.Dispose(); // until the last call has ended
                FailsWith(ErrorCode.State, "during its call", () => leaked.Shape("image"));
                leaked.Dispose();
            }
        });
        Test("use after dispose", () =>
        {
            var pipeline = Batches();
            pipeline.Dispose();
            pipeline.Dispose();
            FailsWith(ErrorCode.State, "closed", () => pipeline.Next());
            var trainer = MakeTrainer();
            trainer.Dispose();
            FailsWith(ErrorCode.State, "closed", () => trainer.Step(new Batch()));
        });
        Test("a trainer in use by another thread", () =>
        {
            using (var entered = new ManualResetEventSlim())
            using (var letGo = new ManualResetEventSlim())
            using (var trainer = MakeTrainer())
            using (var pipeline = Batches())
            using (var evaluation = new Pipeline(new { epochs = 1 })
                .Add(Stages.Folder(root), Stages.Label(), Stages.Decode())
                .Map("wait", sample =>
                {
                    entered.Set();
                    letGo.Wait();
                }).Add(Stages.Batch(16), Stages.Normalize()))
            {
                Batch batch = pipeline.Next();
                Scores scores = null;
                var other = new Thread(() => scores = trainer.Evaluate(evaluation));
                other.Start();
                entered.Wait();
                FailsWith(ErrorCode.State, "in use by another thread", () => trainer.Step(batch));
                FailsWith(ErrorCode.State, "in use by another thread", () => trainer.Predict(batch));
                letGo.Set();
                other.Join();
                Expect(scores != null, "no scores");
                trainer.Step(batch);
            }
        });
        Test("cancellation", () =>
        {
            using (var pipeline = Images().Add(Stages.Delay(60000)))
            using (var source = new CancellationTokenSource(200))
            {
                var watch = Stopwatch.StartNew();
                Fails<OperationCanceledException>(() => pipeline.Next(source.Token));
                Expect(watch.ElapsedMilliseconds < 60000, watch.ElapsedMilliseconds);  // not after the delay
            }
        });
        Test("a thousand pipelines leave no memory behind", () =>
        {
            Action once = () =>
            {
                using (var pipeline = Images().Map("same", item => { })) pipeline.Next().Dispose();
            };
            for (int i = 0; i < 300; ++i) once();
            GC.Collect();
            GC.WaitForPendingFinalizers();
            long more = long.MaxValue;
            for (int attempt = 0; attempt < 3 && more >= 64 << 20; ++attempt)  // the virtual machine's own memory may grow once
            {
                long before = Resident();
                for (int i = 0; i < 1000; ++i) once();
                GC.Collect();
                GC.WaitForPendingFinalizers();
                more = Resident() - before;
            }
            Expect(more < 64 << 20, more + " bytes more");
        });
        Test("collected in any order", () =>
        {
            for (int i = 0; i < 50; ++i)
            {
                var pipeline = Images().Map("same", item => { });
                Batch batch = pipeline.Next();
                if (i % 2 == 0) pipeline = null;
                else batch = null;
                GC.Collect();
                GC.KeepAlive(batch);
            }
            GC.Collect();
            GC.WaitForPendingFinalizers();
        });
        Test("pipelines that are left behind end their threads", () =>
        {
            Func<int> threads = () => Directory.GetDirectories("/proc/self/task").Length;
            int before = threads();
            var thread = new Thread(() =>  // whose stack is gone when it has ended
            {
                for (int i = 0; i < 20; ++i)
                    new Pipeline(new { threads = 2 }).Source("ones", item => item.Set("x", new[] { 1f }, 1)).Next().Dispose();
            });
            thread.Start();
            thread.Join();
            for (int i = 0; i < 500 && threads() > before + 10; ++i)
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
                Thread.Sleep(20);
            }
            Expect(threads() <= before + 10, threads() + " threads, and " + before + " before");
        });
        Test("a source of one's own", () =>
        {
            using (var p = new Pipeline(new { epochs = 1 }).Source("count", item =>
            {
                int number = (int)(item.Ordinal & 0xFFFFFFFFFFL);
                if (number < 10) item.Set("label", new[] { number });
            }).Add(Stages.Batch(4, dropRemainder: false)))
            {
                int samples = 0;
                foreach (Batch batch in p)
                {
                    Expect(batch.ToArray<int>("label")[0] == samples, samples);
                    samples += batch.Samples;
                }
                Expect(samples == 10, samples);
            }
        });
        Test("a source that sets no field", () =>
        {
            using (var p = new Pipeline(new { epochs = 1 }).Source("nothing", item => { }))
                FailsWith(ErrorCode.Callback, "the first sample of a pass has no field", () => p.Next());
            using (var p = Images().Map("all gone", item => { foreach (string field in item.Fields) item.Remove(field); }))
                FailsWith(ErrorCode.Callback, "has removed every field", () => p.Next());
        });
        Test("progress of evaluations", () =>
        {
            using (var trainer = MakeTrainer())
            using (var data = Batches(new { threads = 2 }))
            {
                var told = new System.Collections.Generic.List<string>();
                EventHandler<EvaluationEventArgs> note = (sender, e) => told.Add(e.Done + " of " + e.Batches);
                trainer.EvaluationProgressed += note;
                trainer.Evaluate(data);
                Expect(string.Join(", ", told) == "1 of 4, 2 of 4, 3 of 4, 4 of 4", string.Join(", ", told));
                trainer.Fit(data, 1, data);
                Expect(told.Count == 8, told.Count);
                trainer.EvaluationProgressed -= note;
                EventHandler<EvaluationEventArgs> stop = (sender, e) => e.Stop = e.Done == 2;
                trainer.EvaluationProgressed += stop;
                using (var stopped = Batches()) FailsWith(ErrorCode.Cancelled, "after 2 batches", () => trainer.Evaluate(stopped));
                trainer.EvaluationProgressed -= stop;
                EventHandler<EvaluationEventArgs> fail = (sender, e) => throw new InvalidDataException("mine");
                trainer.EvaluationProgressed += fail;
                using (var failed = Batches()) Expect(Fails<InvalidDataException>(() => trainer.Evaluate(failed)).Message == "mine", "");
                trainer.EvaluationProgressed -= fail;
                EventHandler<EvaluationEventArgs> use = (sender, e) => trainer.Summary();
                trainer.EvaluationProgressed += use;
                using (var used = Batches()) FailsWith(ErrorCode.State, "in use", () => trainer.Evaluate(used));
                trainer.EvaluationProgressed -= use;
                using (var free = Batches()) trainer.Evaluate(free);
            }
        });
        Test("a batch is closed while others use it", () =>
        {
            for (int round = 0; round < 200; ++round)
            {
                var batch = new Batch().Set("x", new float[1000], 1000);
                Exception wrong = null;
                using (var ready = new CountdownEvent(2))
                {
                    var readers = Enumerable.Range(0, 2).Select(i => new Thread(() =>
                    {
                        ready.Signal();
                        try
                        {
                            while (true) Expect(batch.ToArray<float>("x")[999] == 0 && batch.Shape("x")[0] == 1000, "other values");
                        }
                        catch (EchoTrainException error) when (error.Code == ErrorCode.State)
                        {
                        }
                        catch (Exception error)
                        {
                            wrong = error;
                        }
                    })).ToList();
                    readers.ForEach(reader => reader.Start());
                    ready.Wait();
                    batch.Dispose();
                    readers.ForEach(reader => reader.Join());
                }
                Expect(wrong == null, wrong);
            }
        });
        Test("what things say of themselves", () =>
        {
            using (var trainer = MakeTrainer())
            using (var pipeline = Images().Map("same", item => { }).Add(Stages.Batch(16)))
            {
                string text = pipeline.ToString();
                Expect(text.StartsWith("Pipeline(folder ") && text.Contains(", map same, batch ") && text.Contains("\"threads\": 2"), text);
                Batch batch = pipeline.Next();
                Expect(batch.ToString().Contains("label: I32 [16]") && batch.ToString().Contains("image: U8 [16, "), batch);
                batch.Dispose();
                Expect(batch.ToString() == "Batch(closed)", batch);
                text = trainer.ToString();
                Expect(text.Contains("\"units\":10") && text.Contains("sgd") && text.Contains(trainer.Device.Name), text);
            }
        });
        Test("training", () =>
        {
            using (var trainer = MakeTrainer())
            using (var pipeline = Batches(new { threads = 2 }))
            using (var validation = Batches(new { threads = 2 }))
            {
                trainer.EpochEnded += (sender, told) => told.Stop = told.Epoch == 7 && told.Validation != null;
                Expect(pipeline.Length == 4, pipeline.Length);
                int steps = 0;
                trainer.StepEnded += (sender, told) => ++steps;
                var history = trainer.Fit(pipeline, 10, validation);
                Expect(steps == 32, steps);
                Expect(history.Count == 8, history.Count);
                Expect(history[7].Loss < history[0].Loss, history[7].Loss);
                Expect(history[7].Samples == 64 && trainer.Evaluate(validation).Samples == 64, history[7].Samples);
                Batch wrong = new Batch().Set("image", new float[6], 2, 3).Set("label", new int[2], 2);
                FailsWith(ErrorCode.InvalidArgument, "[N, 3]", () => trainer.Step(wrong));
                Fails<ArgumentException>(() => new Batch().Set("image", new float[5], 2, 3));
            }
        });
        Test("batches of any size, weights and summaries", () =>
        {
            using (var trainer = MakeTrainer())
            {
                FailsWith(ErrorCode.State, "before the first batch", () => trainer.Weights());
                foreach (int rows in new[] { 1, 30, 16, 99 })
                {
                    Batch images = new Batch().Set("image", new float[rows * 64], rows, 8, 8, 1);
                    Expect(trainer.Predict(images).Shape("output")[0] == rows, rows);
                }
                Batch weights = trainer.Weights();
                Expect(weights.Fields.Count == 2 && weights.ToArray<float>("dense_2.weight").Length == 640, weights.Fields);
                trainer.SetWeights(new Batch().Set("dense_2.bias", new float[] { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }, 10));
                Expect(trainer.Weights("dense_2.bias").ToArray<float>("dense_2.bias")[2] == 2, "set");
                FailsWith(ErrorCode.NotFound, "dense_2.bias", () => trainer.Weights("dense_2.bia"));
                FailsWith(ErrorCode.InvalidArgument, "f32 [10], not f32 [1]",
                          () => trainer.SetWeights(new Batch().Set("dense_2.bias", new float[1], 1)));
                trainer.SetHyperparameter("weight_decay", 0.1);
                FailsWith(ErrorCode.NotFound, "weight_decay", () => trainer.SetHyperparameter("weight_decai", 0.1));
                Expect(trainer.Summary().Contains("650 parameters"), trainer.Summary());
            }
            string summary = new Model(Layers.Flatten(), Layers.Dense(2)).Summary("{\"image\": [8, 8, 1]}");
            Expect(summary.Contains("[N, 64]"), summary);
        });
        Test("what a detector found", () =>
        {
            // One anchor in the middle, far more likely class 0 than background or class 1.
            float[] row = { 0, 9, 0, 0, 0, 0, 0, 0.5f, 0.5f, 0.25f, 0.5f };
            using (Batch found = Trainer.Detections(new Batch().Set("output", row, 1, 1, 11), maxDetections: 2))
            {
                float[] boxes = found.ToArray<float>("boxes");
                Expect(boxes.Length == 12, boxes.Length);
                Expect(boxes[0] == 0 && boxes[1] == 0.375f && boxes[4] == 0.75f, boxes[1]);
                Expect(boxes[5] > 0.99f && boxes[6] == -1, boxes[5]);
            }
            FailsWith(ErrorCode.InvalidArgument, "anchors",
                      () => Trainer.Detections(new Batch().Set("output", new float[4], 2, 2)));
        });
        Test("models are graphs", () =>
        {
            var graph = new Model(new[] { "x" }, Layers.Dense(4, name: "a"), Layers.Relu(),
                Layers.Add(input: new[] { "relu_2", "a" }),
                Layers.Residual(new[] { Layers.Dense(4) }, shortcut: new[] { Layers.Dense(4, bias: false) }, activation: "gelu"),
                Layers.Dense(2)).Loss("mse");
            var ready = new Model(Models.Mlp(hidden: new long[] { 8 }, classes: 3));
            var device = new Device(Environment.GetEnvironmentVariable("ECHOTRAIN_TEST_DEVICE") ?? "");
            using (var trainer = new Trainer(device, graph, Optimizers.Adamw(clipNorm: 1), 0.01, seed: 1))
            using (var other = new Trainer(device, ready, Optimizers.Sgd(), 0.01, seed: 1))
            {
                trainer.Step(new Batch().Set("x", new float[6], 2, 3).Set("label", new float[4], 2, 2));
                other.Step(new Batch().Set("image", new float[6], 2, 3).Set("label", new int[2], 2));
                string path = System.IO.Path.GetTempFileName();
                trainer.ExportOnnx(path);
                Expect(new System.IO.FileInfo(path).Length > 500, path);
                Model tuned = Model.FromOnnx(path, "a", Layers.Dense(3, name: "head")).Freeze("a.*");
                Expect(tuned.ToString().Contains("head") && !tuned.ToString().Contains("residual"), tuned);
                FailsWith(ErrorCode.NotFound, "'until' is 'b'", () => Model.FromOnnx(path, "b"));
                System.IO.File.Delete(path);
                var tuning = new System.Collections.Generic.List<string>();
                device.Tune(path, (sender, e) => tuning.Add(e.Text));
                Expect(tuning.Any(text => text.StartsWith("nn 2x2x4 fp32: ")), string.Join("\n", tuning));
                Expect(System.IO.File.ReadAllText(path).Contains("nn 2x2x4 fp32"), path);
                new Device("", 0, path);
                System.IO.File.Delete(path);
            }
            FailsWith(ErrorCode.InvalidArgument, "6 n + 2", () => new Model(Models.CifarResnet(depth: 21)));
        });
        Test("jobs", () =>
        {
            string json = JobJson();
            JobEvent last = Job.Parse(json, "train.steps=12").Run(new Device()).Last();
            Expect(last.Kind == JobEventKind.End && last.Step == 12, last.Step);
            FailsWith(ErrorCode.InvalidArgument, "steps", () => Job.Parse(json, "train.stepz=1"));
            string stalled = json.Replace("{\"stage\": \"label\"}",
                "{\"stage\": \"delay\", \"milliseconds\": 600000}, {\"stage\": \"label\"}");
            foreach (JobEvent e in Job.Parse(stalled, "train.progress_every=3600").Run(new Device()).Events(0.01))
            {
                Expect(e.Kind == JobEventKind.Progress && e.Step == 0, e.Step);
                break;
            }
            var doings = new System.Collections.Generic.List<string>();
            string advice = Job.Parse(json, "train.steps=12")
                .Advise(new Device(), 0.1, progress: (sender, e) => doings.Add(e.Text));
            Expect(doings.Contains("the pipeline alone"), string.Join("\n", doings));
            FailsWith(ErrorCode.Cancelled, "stopped", () => Job.Parse(json, "train.steps=12")
                .Advise(new Device(), 60, progress: (sender, e) => e.Stop = true));
            Fails<InvalidDataException>(() => Job.Parse(json, "train.steps=12")
                .Advise(new Device(), 60, progress: (sender, e) => throw new InvalidDataException("mine")));
            Expect(advice.Contains("\"helps\":") && advice.Contains("\"edges\":"), advice);
            using (var stopped = new System.Threading.CancellationTokenSource(200))
                FailsWith(ErrorCode.Cancelled, "stopped",
                          () => Job.Parse(json, "train.steps=12").Advise(new Device(), 60, false, stopped.Token));
            int begin = "{'pipeline': ".Length;
            string stages = json.Substring(begin, json.IndexOf(", \"model\"") - begin);
            Job evaluating = Job.Parse(json.Substring(0, json.Length - 1) + ", \"evaluation\": {\"pipeline\": " + stages +
                ", \"every_steps\": 2}}", "train.steps=4", "train.progress_every=3600");
            var kinds = new System.Collections.Generic.List<JobEventKind>();
            Fails<InvalidDataException>(() =>
            {
                foreach (JobEvent e in evaluating.Run(new Device(), JobStart.New,
                    evaluation: (sender, told) => throw new InvalidDataException("mine")))
                    kinds.Add(e.Kind);
            });
            Expect(kinds.Count == 1 && kinds[0] == JobEventKind.End, string.Join(" ", kinds));
            string folder = System.IO.Path.Combine(System.IO.Path.GetTempPath(), System.IO.Path.GetRandomFileName());
            Job kept = Job.Parse(json, "train.steps=12", "output.dir=" + folder);
            foreach (JobStart start in new[] { JobStart.New, JobStart.Overwrite, JobStart.Resume })
            {
                kept.Run(new Device(), start).Last();
                Expect(System.IO.File.ReadAllLines(System.IO.Path.Combine(folder, "metrics.jsonl")).Length == 12, start);
            }
            FailsWith(ErrorCode.State, "overwrite", () => kept.Run(new Device(), JobStart.New));
            System.IO.Directory.Delete(folder, true);
        });
        Test("events of a run", () =>
        {
            string data = Path.Combine(Path.GetTempPath(), Path.GetRandomFileName());
            foreach (string drawn in Directory.GetFiles(root, "*", SearchOption.AllDirectories))
            {
                string copy = data + drawn.Substring(root.Length);
                Directory.CreateDirectory(Path.GetDirectoryName(copy));
                File.Copy(drawn, copy);
            }
            File.WriteAllBytes(Path.Combine(data, "0", "damaged.png"), new byte[] { 1, 2, 3 });
            string json = JobJson().Replace(root, data)
                .Replace("{\"stage\": \"batch\"", "{\"stage\": \"echo\", \"factor\": 2}, {\"stage\": \"batch\"");
            // Eight batches of 16: each of the 64 good images twice.
            JobEvent last = Job.Parse(json, "train.steps=8", "pipeline.on_error=skip").Run(MakeDevice(), JobStart.New).Last();
            Directory.Delete(data, true);
            Expect(last.Step == 8 && last.TotalSteps == 8, last.TotalSteps);
            Expect(last.Examples == 128 && last.Fresh == 64 && last.Echoed == 64,
                   last.Examples + " " + last.Fresh + " " + last.Echoed);
            Expect(last.BadRecords == 1, last.BadRecords);
            Expect((float)last.LearningRate == 0.01f, last.LearningRate);
            Expect(last.Seconds > 0 && last.ExamplesPerSecond > 0, last.Seconds);
            Expect(last.DeviceWaitShare >= 0 && last.DeviceWaitShare <= 1, last.DeviceWaitShare);
            Expect(!last.TargetReached, "no target");
            int begin = "{'pipeline': ".Length;
            string stages = JobJson().Substring(begin, JobJson().IndexOf(", \"model\"") - begin);
            JobEvent[] events = Job.Parse(
                JobJson().Replace(", \"train\"", ", \"evaluation\": {\"pipeline\": " + stages + "}, \"train\""), "train.steps=6",
                "train.progress_every=3600", "evaluation.every_steps=2", "evaluation.target_loss=1000000")
                .Run(MakeDevice(), JobStart.New).ToArray();
            Expect(events.Select(e => e.Kind).SequenceEqual(new[] { JobEventKind.Evaluation, JobEventKind.End }),
                   string.Join(" ", events.Select(e => e.Kind)));
            last = events[1];
            Expect(last.TargetReached && last.Step == 2 && last.TotalSteps == 6, last.Step + " of " + last.TotalSteps);
            Expect(last.EvalLoss > 0 && last.EvalAccuracy >= 0 && last.EvalAccuracy <= 1, last.EvalLoss);
            Expect(last.BadRecords == 0 && last.Fresh == 32 && last.Echoed == 0, last.Fresh);
        });
        Test("what a device says of itself", () =>
        {
            Device device = MakeDevice();
            Expect(Device.List()[device.Index] == device.Name, device.Index);
            Expect(device.MemoryBytes > 1 << 20, device.MemoryBytes);
            bool software = device.Name.Contains("llvmpipe") || device.Name.Contains("SwiftShader");
            Expect(!software || device.Kind == DeviceKind.Cpu, device.Kind);
        });
        Test("the wrong device is an error", () =>
        {
            Expect(Device.List().Count > 0, "no device");
            Fails<EchoTrainException>(() => new Device("no such device"));
            FailsWith(ErrorCode.InvalidArgument, "hang_seconds is -1", () => new Device(hangSeconds: -1));
        });
        MisuseTests();
        TransportTests();
        ServerTests();
        StudyTests();
        Console.WriteLine(passed + " passed, " + failed + " failed");
        // What still runs when the process ends must not hold it up.
        Images(new { threads = 4 }).Add(Stages.Repeat()).Map("same", item => { }).Next();
        return failed > 0 ? 1 : 0;
    }
}
