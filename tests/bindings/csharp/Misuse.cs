using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Threading;
using EchoTrain;

/// What is left in the middle, stopped or wrongly given.
public static partial class Behaviour
{
    private static void MisuseTests()
    {
        Test("a run that is left or disposed of gives its folder back", EndedRuns);
        Test("a run has a trainer that outlives it", TrainersOfRuns);
        Test("the inner exception is what ended the run", Causes);
        Test("the text of an exception may hold what C cannot", Unpassable);
        Test("samples that a pipeline holds when it is disposed of are not bad", HeldAtTheEnd);
        Test("a pipeline is disposed of in a function of its own", EndedWithin);
        Test("a token is cancelled after its pipeline was disposed of", CancelledTooLate);
        Test("as many functions run at once as the pipeline has threads", AllThreads);
        Test("threads that begin a pipeline at the same time are served or refused", BegunTogether);
        Test("no thread waits for a function that was refused", RefusedFunctions);
        Test("no thread waits for functions that were freed before it began", FreedFunctions);
        Test("functions run on fewer threads if no more can be started", NoMoreThreads);
        Test("an evaluation that is stopped within Fit", StoppedEvaluations);
        Test("a Fit that fails leaves no steps to the next one", FailedFit);
        Test("options are the same in every culture", Cultures);
        Test("arguments that are missing or out of range", Arguments);
        Test("bad records are log lines with their subject", LogLines);
        Test("packing, tuning and explaining", LibraryFunctions);
    }

    private static void EndedRuns()
    {
        string folder = Path.Combine(Path.GetTempPath(), Path.GetRandomFileName());
        Job job = Job.Parse(JobJson(), "output.dir=" + folder);
        Device device = MakeDevice();
        JobRun run = job.Run(device, JobStart.New);
        FailsWith(ErrorCode.State, "another run writes into", () => job.Run(device, JobStart.Overwrite));
        foreach (JobEvent told in run) break;
        FailsWith(ErrorCode.State, "is over", () => run.GetEnumerator());
        job.Run(device, JobStart.Overwrite).First();
        using (job.Run(device, JobStart.Overwrite)) { }
        JobRun disposed = job.Run(device, JobStart.Overwrite);
        IEnumerator<JobEvent> events = disposed.GetEnumerator();
        events.MoveNext();
        disposed.Dispose();
        disposed.Dispose();
        disposed.Stop();
        FailsWith(ErrorCode.State, "closed", () => events.MoveNext());
        using (var source = new CancellationTokenSource())
        {
            source.Cancel();
            Expect(job.Run(device, JobStart.Overwrite, source.Token).Last().Step < 50, "stopped");
        }
        Directory.Delete(folder, true);
    }

    private static void TrainersOfRuns()
    {
        string folder = Path.Combine(Path.GetTempPath(), Path.GetRandomFileName());
        Job job = Job.Parse(JobJson(), "output.dir=" + folder, "train.steps=4");
        Device device = MakeDevice();
        Trainer trainer;
        using (JobRun run = job.Run(device, JobStart.New))
        {
            trainer = run.Trainer;
            Expect(ReferenceEquals(trainer, run.Trainer) && trainer.Device == device, trainer);
            trainer.SetHyperparameter("weight_decay", 0.1);
#pragma warning disable 618
            run.SetHyperparameter("weight_decay", 0.2);
#pragma warning restore 618
            Expect(run.Stats.Contains("\"stages\""), run.Stats);
            FailsWith(ErrorCode.State, "the trainer of a run", () => trainer.Result());
            FailsWith(ErrorCode.State, "no evaluation", () => run.Evaluate());
            Expect(run.Last().Step == 4, "steps");
        }
        Expect(trainer.Weights().Fields.Any(), "weights");
        using (JobRun last = job.Run(device, JobStart.Evaluate))
        {
            string name = trainer.Weights().Fields.First();
            Expect(trainer.Weights(name).Span<float>(name).SequenceEqual(last.Trainer.Weights(name).Span<float>(name)), name);
            FailsWith(ErrorCode.State, "evaluate", () => last.First());
        }
        trainer.Dispose();
        Directory.Delete(folder, true);
    }

    // Records whose failures are skipped leave exceptions behind, whose words may stand in those of the one that matters.
    private static void Causes()
    {
        foreach (bool silentFirst in new[] { true, false })
            using (var pipeline = new Pipeline(new { on_error = "skip", max_bad_records = 1, threads = 1 })
                .Source("count", item => item.Set("label", new[] { 0 }))
                .Map("picky", item => throw new InvalidDataException((item.Ordinal == 0) == silentFirst ? "" : "number one")))
            {
                var error = Fails<EchoTrainException>(() => pipeline.Next());
                Expect(error.InnerException != null, error);
                Expect(error.InnerException.Message == "" != error.Message.Contains("number one"), error);
            }
        var mine = new InvalidDataException("mine");
        using (var trainer = MakeTrainer())
        using (var validation = Images(new { threads = 2 }).Map("mine", item => throw mine).Add(Stages.Batch(16), Stages.Normalize()))
        {
            var error = Fails<EchoTrainException>(() => trainer.Evaluate(validation));
            Expect(error.Code == ErrorCode.Callback && error.InnerException == mine, error);
        }
    }

    private const long IndexInPass = 0xFFFFFFFFFF;  // of an ordinal

    private static void Unpassable()
    {
        var wrong = new FormatException("The input string '12\0\ud800' was not in a correct format.");
        foreach (string rule in new[] { "skip", "fail" })
            using (var pipeline = new Pipeline(new { epochs = 1, on_error = rule }).Source("four", item =>
            {
                if ((item.Ordinal & IndexInPass) == 1) throw wrong;
                if ((item.Ordinal & IndexInPass) < 4) item.Set("label", new[] { 0 });
            }))
            {
                if (rule == "skip")
                {
                    Expect(pipeline.Count() == 3, "one of four is bad");
                    Expect(pipeline.BadRecords.Contains("'12?\ufffd' was"), pipeline.BadRecords);
                }
                else Expect(Fails<EchoTrainException>(() => pipeline.Count()).InnerException == wrong, "the exception itself");
            }
    }

    private static void HeldAtTheEnd()
    {
        string folder = Path.Combine(Path.GetTempPath(), Path.GetRandomFileName());
        string list = folder + ".jsonl";
        for (int round = 0; round < 5; ++round)
            using (var pipeline = new Pipeline(new
                { threads = Environment.ProcessorCount + 6, on_error = "quarantine", quarantine_dir = folder, bad_records_file = list })
                .Source("ones", item => item.Set("x", new[] { 1f }, 1)).Map("slow", item => Thread.Sleep(20)).Add(Stages.Batch(1)))
                for (int i = 0; i < 3; ++i) pipeline.Next().Dispose();
        Expect(!Directory.Exists(folder) && !File.Exists(list), "good samples are in quarantine");
    }

    private static void EndedWithin()
    {
        var read = new ManualResetEventSlim();
        var disposed = new ManualResetEventSlim();
        Pipeline pipeline = null;
        int calls = 0;
        pipeline = new Pipeline(new { threads = 2 }).Source("ones", item => item.Set("x", new[] { 1f }, 1)).Map("ends", item =>
        {
            if (Interlocked.Increment(ref calls) != 2) return;
            read.Wait();  // otherwise the call of Next() would end the pipeline
            pipeline.Dispose();
            disposed.Set();
        });
        pipeline.Next().Dispose();
        read.Set();
        Expect(disposed.Wait(60000), "Dispose waits for the function that has called it");
        FailsWith(ErrorCode.State, "closed", () => pipeline.Next());
    }

    private static void CancelledTooLate()
    {
        for (int round = 0; round < 10; ++round) CancelTooLate();
    }

    private static void CancelTooLate()
    {
        using (var source = new CancellationTokenSource())
        using (var waits = new ManualResetEventSlim())
        using (var gate = new ManualResetEventSlim())
        {
            Pipeline pipeline = new Pipeline().Source("waits", item =>
            {
                waits.Set();
                gate.Wait();
                item.Set("x", new[] { 1f }, 1);
            });
            Exception failure = null;
            var reader = new Thread(() =>
            {
                try
                {
                    pipeline.Next(source.Token);
                }
                catch (Exception error)  // that of the token, or of the pipeline if the reader was faster
                {
                    failure = error;
                }
            }) { IsBackground = true };
            reader.Start();
            waits.Wait();
            // Either thread may wait for the source.
            var disposer = new Thread(pipeline.Dispose) { IsBackground = true };
            disposer.Start();
            disposer.Join(20);
            source.Cancel();
            gate.Set();
            Expect(reader.Join(60000) && disposer.Join(60000), "the reader or Dispose hangs");
            Expect(failure is OperationCanceledException || (failure as EchoTrainException)?.Code == ErrorCode.Cancelled, failure);
        }
    }

    private static void AllThreads()
    {
        int threads = Environment.ProcessorCount + 3;
        using (var inside = new CountdownEvent(threads))
        using (var pipeline = new Pipeline(new { threads }).Source("ones", item => item.Set("x", new[] { 1f }, 1)).Map("meets", item =>
        {
            if (item.Ordinal < 20 || inside.IsSet) return;  // the first ones are measured one by one
            inside.Signal();
            if (!inside.Wait(60000)) throw new TimeoutException(inside.CurrentCount + " of " + threads + " are missing");
        }))
            while (!inside.IsSet) pipeline.Next().Dispose();
    }

    private static void BegunTogether()
    {
        for (int round = 0; round < 100; ++round)
            using (var both = new Barrier(2))
            using (var pipeline = new Pipeline(new { threads = 1 }).Source("ones", item => item.Set("x", new[] { 1f }, 1)))
            {
                var failures = new Exception[2];
                Thread[] readers = Enumerable.Range(0, 2).Select(i => new Thread(() =>
                {
                    both.SignalAndWait();
                    try
                    {
                        pipeline.Next();
                    }
                    catch (Exception error)
                    {
                        failures[i] = error;
                    }
                }) { IsBackground = true }).ToArray();
                foreach (Thread reader in readers) reader.Start();
                foreach (Thread reader in readers) Expect(reader.Join(60000), "a reader hangs");
                foreach (Exception failure in failures)
                    Expect(failure == null || (failure as EchoTrainException)?.Code == ErrorCode.State, failure);
            }
    }

    private static int FunctionThreads() => Directory.GetDirectories("/proc/self/task").Count(task => ThreadName(task).StartsWith("EchoTrain funct"));

    private static string ThreadName(string task)
    {
        try { return File.ReadAllText(Path.Combine(task, "comm")); }
        catch (IOException) { return ""; }  // it has ended since the folders were listed
    }

    private static void RefusedFunctions()
    {
        for (int i = 0; i < 100 && FunctionThreads() > 0; ++i)  // those of earlier pipelines
        {
            GC.Collect();
            Thread.Sleep(10);
        }
        int before = FunctionThreads();  // Mono's collector may keep a pipeline that is not disposed of
        var pipeline = new Pipeline();
        FailsWith(ErrorCode.InvalidArgument, "", () => pipeline.Source("", item => { }));
        FailsWith(ErrorCode.InvalidArgument, "NUL", () => pipeline.Source("a\0b", item => { }));
        Fails<EchoTrainException>(() => pipeline.Next());
        Thread.Sleep(100);
        Expect(FunctionThreads() <= before, FunctionThreads());
    }

    // What a pipeline that is collected does while its first thread has not begun.
    private static void FreedFunctions()
    {
        Func<string, object[], object> make = (type, arguments) =>
            Activator.CreateInstance(typeof(Pipeline).Assembly.GetType("EchoTrain.Native." + type), arguments);
        Func<object, string, object[], object> call = (of, method, arguments) => of.GetType().GetMethod(method).Invoke(of, arguments);
        object queue = make("CallQueue", new object[0]);
        object handle = make("PipelineHandle", new object[] { "{}" });
        call(handle, "add_source", new[] { "s", call(queue, "make", new object[] { 0 }) });
        ((IDisposable)handle).Dispose();
        Expect(call(queue, "take", new object[] { 0.0 }) == null, "a call");
        Expect((bool)call(queue, "is_closed", new object[0]), "the queue stays open");
    }

    [StructLayout(LayoutKind.Sequential)]
    private struct Limit
    {
        internal ulong Current, Most;
    }

    private const int ProcessesOfUser = 6;  // RLIMIT_NPROC

    [DllImport("libc", EntryPoint = "getrlimit")]
    private static extern int GetLimit(int what, out Limit limit);

    [DllImport("libc", EntryPoint = "setrlimit")]
    private static extern int SetLimit(int what, ref Limit limit);

    [DllImport("libc", EntryPoint = "geteuid")]
    private static extern uint User();

    [DllImport("libc", EntryPoint = "setresuid")]
    private static extern int SetUser(uint real, uint effective, uint saved);

    /// No thread can be started until the result is called. Root has no limits, so it becomes somebody else for so long.
    private static Action WithoutThreads()
    {
        bool root = User() == 0;
        if (root) Expect(SetUser(54321, 54321, 0) == 0, "setresuid");
        GetLimit(ProcessesOfUser, out Limit before);
        var none = new Limit { Current = 1, Most = before.Most };
        Expect(SetLimit(ProcessesOfUser, ref none) == 0, "setrlimit");
        return () =>
        {
            SetLimit(ProcessesOfUser, ref before);
            if (root) SetUser(0, 0, 0);
        };
    }

    // After AllThreads, whose threads oneTBB has kept.
    private static void NoMoreThreads()
    {
        using (var pipeline = new Pipeline(new { threads = 2 }).Source("ones", item => item.Set("x", new[] { 1f }, 1)))
        {
            Action end = WithoutThreads();
            try
            {
                FailsWith(ErrorCode.OutOfMemory, "'EchoTrain functions' could not be started", () => pipeline.Next());
            }
            finally
            {
                end();
            }
            pipeline.Next().Dispose();
        }
        Action ends = null;
        int inside = 0, most = 0;
        using (var pipeline = new Pipeline(new { threads = 2 }).Source("ones", item =>
        {
            if (ends == null) ends = WithoutThreads();  // there is a thread for one more call
            item.Set("x", new[] { 1f }, 1);
        }).Map("sleeps", item =>
        {
            most = Math.Max(most, Interlocked.Increment(ref inside));
            Thread.Sleep(2);
            Interlocked.Decrement(ref inside);
        }))
        {
            try
            {
                for (int i = 0; i < 200; ++i) pipeline.Next().Dispose();
            }
            finally
            {
                ends();
            }
        }
        Expect(most == 2, most);
    }

    private static void FailedFit()
    {
        using (var trainer = MakeTrainer())
        using (var endless = Batches(new { epochs = 0 }))
        using (var once = Batches(new { epochs = 1 }))
        {
            EventHandler<StepEndedEventArgs> fails = (sender, told) => { throw new FormatException("mine"); };
            trainer.StepEnded += fails;
            Fails<FormatException>(() => trainer.Fit(endless, 1));
            trainer.StepEnded -= fails;
            long samples = trainer.Fit(once, 1)[0].Samples;
            Expect(samples == 64, samples);
        }
    }

    private static void Cultures()
    {
        CultureInfo before = CultureInfo.CurrentCulture;
        var other = (CultureInfo)CultureInfo.InvariantCulture.Clone();
        other.NumberFormat.NegativeSign = "\u2212";
        other.NumberFormat.NumberDecimalSeparator = ",";
        try
        {
            CultureInfo.CurrentCulture = other;
            Expect(Layers.Reduce(new long[] { -1 }).ToString().Contains("[-1]"), Layers.Reduce(new long[] { -1 }));
            using (var pipeline = Batches(new { epochs = 1u, seed = 5ul, max_bad_share = 0.5m }))
                Expect(pipeline.Next() != null, "no batch");
        }
        finally
        {
            CultureInfo.CurrentCulture = before;
        }
    }

    private static void StoppedEvaluations()
    {
        using (var trainer = MakeTrainer())
        using (var data = Batches(new { threads = 2 }))
        using (var validation = Batches(new { threads = 2 }))
        {
            var told = new List<string>();
            EventHandler<EvaluationEventArgs> stop = (sender, e) =>
            {
                told.Add(e.Done + " of " + e.Batches);
                e.Stop = told.Count == 2;  // within the first evaluation
            };
            trainer.EvaluationProgressed += stop;
            var scores = new List<Scores>();
            trainer.EpochEnded += (sender, e) => scores.Add(e.Validation);
            trainer.Fit(data, 2, validation);
            Expect(scores.Count == 2 && scores[0] == null && scores[1] != null, scores.Count);
            Expect(string.Join(", ", told) == "1 of 4, 2 of 4, 0 of , 0 of , 1 of 4, 2 of 4, 3 of 4, 4 of 4", string.Join(", ", told));
            trainer.EvaluationProgressed -= stop;
            trainer.EvaluationProgressed += (sender, e) => validation.Cancel();
            FailsWith(ErrorCode.Cancelled, "", () => trainer.Fit(data, 1, validation));
        }
    }

    private static void Arguments()
    {
        var model = new Model(Layers.Flatten(), Layers.Dense(2));
        Device device = MakeDevice();
        Named("device", () => new Trainer(null, model, Optimizers.Sgd(), 0.1));
        Named("model", () => new Trainer(device, null, Optimizers.Sgd(), 0.1));
        Named("optimizer", () => new Trainer(device, model, null, 0.1));
        Named("schedule", () => new Trainer(device, model, Optimizers.Sgd(), null));
        Named("device", () => Job.Parse(JobJson()).Run(null));
        Named("options", () => new Device("", (DeviceOptions)null));
        new Device("", 0, null).Dispose();
        FailsWith(ErrorCode.InvalidArgument, "memory_limit_bytes is -1", () => new Device("", -1));
        FailsWith(ErrorCode.Unsupported, "9 axes; at most 8",
                  () => new Batch().Set("x", new float[1], 1, 1, 1, 1, 1, 1, 1, 1, 1));
        string said = Fails<ArgumentException>(() => new Batch().Set("x", new int[0], 1L << 32, 1L << 32)).Message;
        Expect(said.Contains("'x'") && said.Contains("[4294967296, 4294967296] is larger than any"), said);
        Named("layers", () => new Model(Layers.Flatten(), null));
        Named("path", () => Model.FromOnnx(null));
        Named("stages", () => new Pipeline().Add(Stages.Folder("a"), null));
        Named("function", () => new Pipeline().Source("s", null));
        Named("function", () => new Pipeline().Source("s", item => { }).Map("m", null));
        Named("field", () => new Batch().Set(null, new float[1], 1));
        Named("selector", () => new Device(null));
        Named("inputs", () => new Model((string[])null, Layers.Dense(2)));
        Named("layers", () => new Model((Spec[])null));
        Named("layers", () => Model.FromOnnx("a", "", (Spec[])null));
        Named("stages", () => new Pipeline().Add((Spec[])null));
        Named("option", () => Stages.Batch(2).Set(null, 1));
        Named("stage", () => Stages.Folder("a").Then(null));
        Named("values", () => new Batch().Set("x", (float[])null, 1));
        Named("shape", () => new Batch().Set("x", new float[1], (long[])null));
        Named("overrides", () => Job.Parse(JobJson(), (string[])null));
        Named("overrides", () => Job.Parse(JobJson(), "train.steps=2", null));
        Named("overrides", () => Study.Load("study.json", (string[])null));
        Named("runs", () => Library.WriteReport("title", null, "r.html"));
        Named("runs", () => Library.WriteReport("title", new ReportedRun[] { null }, "r.html"));
        Named("runs", () => Library.WriteReport("title", new[] { new ReportedRun("a", null) }, "r.html"));
        said = Fails<ArgumentException>(() => new Model(new string[] { null }, Layers.Dense(2))).Message;
        Expect(said.Contains("'inputs' has a null"), said);
        said = Fails<ArgumentException>(() => new Pipeline(new[] { new KeyValuePair<string, object>(null, 1) })).Message;
        Expect(said.Contains("name of an option is null"), said);
        Named("options", () => new Pipeline(3));
        Named("options", () => new Pipeline("seed"));
        Named("options", () => new Pipeline(1.5m));
        using (var trainer = MakeTrainer())
        using (var data = Batches())
        {
            Named("pipeline", () => trainer.Fit(null, 1));
            Named("pipeline", () => trainer.Evaluate(null));
            Named("batch", () => trainer.Step(null));
            Named("batch", () => trainer.Predict(null));
            Named("batch", () => trainer.Forward(null));
            Named("outputGradient", () => trainer.Backward(null));
            Named("weights", () => trainer.SetWeights(null));
            Named("outputs", () => Trainer.Detections(null));
            Named("directory", () => trainer.Save(null));
            Named("epochs", () => trainer.Fit(data, -1));
            Named("epochs", () => trainer.Fit(data, 0));
        }
    }

    private static void Named(string argument, Action check)
    {
        var error = Fails<ArgumentException>(check);
        Expect(error.ParamName == argument, error);
    }

    private static void LogLines()
    {
        string folder = Path.Combine(Path.GetTempPath(), Path.GetRandomFileName());
        Directory.CreateDirectory(Path.Combine(folder, "a"));
        for (int i = 0; i < 3; ++i) File.WriteAllText(Path.Combine(folder, "a", i + ".png"), "no image");
        var lines = new List<LogEventArgs>();
        EventHandler<LogEventArgs> handler = (sender, line) =>
        {
            lock (lines) lines.Add(line);
            if (lines.Count == 1) throw new InvalidOperationException("loses its own line only");
        };
        Log.Written += handler;
        using (Pipeline pipeline = new Pipeline(new { on_error = "skip", max_bad_share = 1.0, epochs = 1 })
            .Add(Stages.Folder(folder), Stages.Decode()))
            Expect(pipeline.Next() == null, "no record is good");
        for (int i = 0; i < 3000 && lines.Count < 3; ++i) Thread.Sleep(10);
        Log.Written -= handler;
        lock (lines)
        {
            Expect(lines.Count >= 3, lines.Count);
            Expect(lines[0].Level == LogLevel.Warning && lines[0].Subject == LogSubject.BadRecord, lines[0].Level);
            Expect(lines[0].Message.Contains("bad record dropped"), lines[0].Message);
        }
        Directory.Delete(folder, true);
    }

    private static void LibraryFunctions()
    {
        string folder = Path.Combine(Path.GetTempPath(), Path.GetRandomFileName());
        Directory.CreateDirectory(folder);
        long told = 0;
        string packed = Library.Pack(root, Path.Combine(folder, "x"), new { per_shard = 40 },
                                     (sender, progress) => told = progress.Done);
        Expect(packed.Contains("\"samples\"") && told > 0, packed);
        FailsWith(ErrorCode.Cancelled, "", () => Library.Pack(root, Path.Combine(folder, "y"), null,
                                                              (sender, progress) => progress.Stop = true));
        string spec = "{\"stages\": [{\"stage\": \"folder\", \"root\": \"" + root +
            "\"}, {\"stage\": \"decode\"}, {\"stage\": \"batch\", \"size\": 4}]}";
        var trials = new List<long>();
        string trial = null;
        string tuned = Library.TunePipeline(spec, 0.02, 0, (sender, progress) =>
        {
            trials.Add(progress.Done);
            trial = progress.Text;
        });
        Expect(tuned.Contains("samples_per_s") && trials.Last() == trials.Count, trials.Count);
        Expect(trial.StartsWith("{") && trial.Contains("samples_per_s"), trial);
        FailsWith(ErrorCode.Cancelled, "", () => Library.TunePipeline(spec, 0.02, 0, (sender, progress) => progress.Stop = true));
        Fails<InvalidDataException>(
            () => Library.TunePipeline(spec, 0.02, 0, (sender, progress) => throw new InvalidDataException("mine")));
        using (Pipeline pipeline = Pipeline.FromJson(spec))
        {
            pipeline.Next().Dispose();
            Expect(Library.ExplainStats(pipeline.Stats, "json").Contains("bottleneck"), pipeline);
        }
        FailsWith(ErrorCode.InvalidArgument, "", () => Library.ExplainStats("{}"));
        FailsWith(ErrorCode.NotFound, "none", () => Library.WriteReport("title",
            new[] { new ReportedRun("a", Path.Combine(folder, "none")) }, Path.Combine(folder, "r.html")));
        Expect(Library.Schema("pack").Contains("per_shard") && Library.Version.StartsWith("0."), Library.Version);
        Model model = Model.FromJson("{\"model\": \"mlp\", \"hidden\": [3]}")
            .Loss("softmax_cross_entropy", new { label_smoothing = 0.1 });
        Expect(model.Json.Contains("label_smoothing"), model);
        Directory.Delete(folder, true);
    }
}
