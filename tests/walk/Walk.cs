using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net.Sockets;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using EchoTrain;

/// Walks at random over the C# binding, as tests/walk/main.cpp does over the C API.
///
///   Walk.exe [--calls 10000] [--seed 1] [--within 10] [--patience 120] [--trace FILE]
///
/// An object may be disposed of at any time and used after that, and another thread may be using it. Each call succeeds
/// or throws what the binding promises; a call on an object that is disposed of fails; nothing hangs; and no thread and
/// no open file is left whenever everything has been disposed of. --within is how long in seconds what is promised soon
/// may take, --patience how long any call; --trace writes each call to a file as it begins, for the case that the
/// process crashes.
public sealed class Walk
{
    /// What functions of the program throw.
    private sealed class Mine : Exception
    {
        internal Mine() : base("a function of the program's") { }
    }

    /// What is found.
    private sealed class Finding : Exception
    {
        /// The first. If a function of the program throws it, the binding takes it for any other exception.
        internal static volatile Finding First;

        internal Finding(string what, Exception cause = null) : base(what, cause)
        {
            if (First == null) First = this;
        }
    }

    /// An object, and whether a call has disposed of it.
    private sealed class Thing
    {
        internal readonly string Kind;
        internal readonly IDisposable It;
        internal volatile bool Closed;
        internal bool Stalls, Ranks;  // waits for data that does not come; several devices, which wait for each other
        internal bool Touched;        // a pipeline that functions of pipelines use

        internal Thing(string kind, IDisposable it)
        {
            Kind = kind;
            It = it;
        }
    }

    private sealed class Open
    {
        internal string Name;
        internal DateTime Began = DateTime.UtcNow;
    }

    private sealed class Count
    {
        internal int Calls, Succeeded;
    }

    private static readonly ErrorCode[] never = { ErrorCode.Internal, ErrorCode.OutOfMemory, ErrorCode.Device, ErrorCode.DeviceLost };
    private static readonly string[] internals = { "std::", "basic_string", "json.exception", "unknown exception", "SWIG",
        "bad_alloc", "vector::", "map::at", "Assertion", "Object reference", "same key" };
    private static readonly string[] kinds = { "Device", "Batch", "Pipeline", "Model", "Trainer", "Job", "JobRun", "Study", "Server" };
    private const int Most = 4;          // objects of a kind
    // Objects that nothing refers to, but that have not been collected. Mono holds one more for every 15,000 calls or so; if the
    // binding held what it must not, there would be dozens more.
    private const int MostHeld = 8, CallsForOneMore = 5000;
    private const int ThreadsOfOne = 6;  // that a pipeline or a trainer has at most: those that serve functions, and the library's
    private const int FilesOfOne = 4;    // the data set that a pipeline reads, and what it keeps
    private const int Workers = 4;       // oneTBB keeps the threads that it has made

    private readonly Random random;
    private readonly double within, patience;
    private readonly string folder;
    private readonly StreamWriter trace;
    private readonly Device device;
    private readonly Dictionary<string, List<Thing>> world = kinds.ToDictionary(kind => kind, kind => new List<Thing>());
    private readonly List<ReadOnlyMemory<float>> memories = new List<ReadOnlyMemory<float>>();
    private readonly List<Exception> failures = new List<Exception>();  // of other threads
    private readonly List<Abandoned> abandoned = new List<Abandoned>();
    private int lent;  // transports that have not been closed
    private int folders;
    private string finishedRun = "/proc/nowhere", finishedStudy = "/proc/nowhere";  // folders
    private readonly object gate = new object();
    // What follows is guarded by it.
    private readonly Queue<string> latest = new Queue<string>();
    private readonly SortedDictionary<string, Count> counts = new SortedDictionary<string, Count>(StringComparer.Ordinal);
    private readonly SortedDictionary<string, int> thrown = new SortedDictionary<string, int>(StringComparer.Ordinal);
    private readonly Dictionary<Thread, Stack<Open>> open = new Dictionary<Thread, Stack<Open>>();
    private long calls;
    private static string repeat;

    private Walk(int seed, double within, double patience, string folder, StreamWriter trace)
    {
        random = new Random(seed);
        this.within = within;
        this.patience = patience;
        this.folder = folder;
        this.trace = trace;
        var rows = new StringBuilder();
        for (int i = 0; i < 24; ++i)
            rows.Append("{\"image\": [" + i % 7 + ".5, 1.5, 2, 1, 0, " + i % 3 + "], \"label\": " + i % 2 + "}\n");
        File.WriteAllText(In("rows.jsonl"), rows.ToString());
        byte[] pixel = Convert.FromBase64String("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA" +
            "WjR9awAAAABJRU5ErkJggg==");
        for (int i = 0; i < 4; ++i)
        {
            Directory.CreateDirectory(In("images/class" + i % 2));
            File.WriteAllBytes(In("images/class" + i % 2 + "/" + i + ".png"), pixel);
        }
        File.WriteAllText(In("images/class0/bad.png"), "no image");
        string header = "{\"dense_1.weight\":{\"dtype\":\"F32\",\"shape\":[2,6],\"data_offsets\":[0,48]}," +
            "\"dense_1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[48,56]}}";
        File.WriteAllBytes(In("weights.safetensors"),
            BitConverter.GetBytes((long)header.Length).Concat(Encoding.ASCII.GetBytes(header)).Concat(new byte[56]).ToArray());
        device = new Device(Environment.GetEnvironmentVariable("ECHOTRAIN_TEST_DEVICE") ?? "");
    }

    private string In(string name) => Path.Combine(folder, name);

    // ---- calls ----

    private void Act(string name, Action action) => Act(name, "", null, action);

    private void Act(string name, string detail, Thing of, Action action) => Call(name, detail, of, () =>
    {
        action();
        return true;
    });

    private T Call<T>(string name, Func<T> body) => Call(name, "", null, body);

    /// Makes a call and returns its result; the default after an exception that is promised. `of`: the object that is
    /// used, if the call fails where that is disposed of.
    private T Call<T>(string name, string detail, Thing of, Func<T> body)
    {
        bool closed = of != null && of.Closed;
        Stack<Open> mine = Begin(name, detail + (closed ? " (closed)" : ""));
        try
        {
            T result = body();
            if (closed) throw new Finding(name + " succeeds on an object that is disposed of");
            lock (gate) ++counts[name].Succeeded;
            return result;
        }
        catch (Exception error)
        {
            Check(name, error);
            string type = error is EchoTrainException known ? known.Code.ToString() : error.GetType().Name;
            lock (gate)
            {
                thrown.TryGetValue(type, out int before);
                thrown[type] = before + 1;
                Note("    " + type + ": " + error.Message);
            }
            return default(T);
        }
        finally
        {
            lock (gate)
            {
                mine.Pop();
                if (mine.Count == 0) open.Remove(Thread.CurrentThread);
            }
        }
    }

    private Stack<Open> Begin(string name, string detail)
    {
        lock (gate)
        {
            ++calls;
            if (!counts.TryGetValue(name, out Count count)) counts[name] = count = new Count();
            ++count.Calls;
            Note(name + " " + detail);
            if (!open.TryGetValue(Thread.CurrentThread, out Stack<Open> mine)) open[Thread.CurrentThread] = mine = new Stack<Open>();
            mine.Push(new Open { Name = name });
            return mine;
        }
    }

    private void Note(string line)
    {
        latest.Enqueue(line.Length > 300 ? line.Substring(0, 300) : line);
        if (latest.Count > 60) latest.Dequeue();
        trace?.WriteLine(line);
    }

    private static void Check(string name, Exception error)
    {
        if (error is Mine) return;
        if (error is Finding) throw new Finding(error.Message, error);
        string text = error.Message;
        if (!(error is EchoTrainException || error is ArgumentException || error is OperationCanceledException))
            throw new Finding(name + " throws " + error.GetType() + ": " + text, error);
        if (string.IsNullOrEmpty(text)) throw new Finding(name + ": " + error.GetType() + " says nothing", error);
        if (error is ArgumentNullException missing && string.IsNullOrEmpty(missing.ParamName))
            throw new Finding(name + ": an ArgumentNullException names no argument: " + text, error);
        if (error is EchoTrainException known && never.Contains(known.Code))
            throw new Finding(name + ": " + known.Code + ": " + text, error);
        foreach (string word in internals)
            if (text.Contains(word)) throw new Finding(name + ": the message is of the implementation: " + text, error);
    }

    /// Ends the process if a call lasts too long, whatever other threads do meanwhile.
    private void Watch()
    {
        while (true)
        {
            Thread.Sleep(500);
            lock (gate)
                foreach (Open each in open.Values.SelectMany(mine => mine))
                    if ((DateTime.UtcNow - each.Began).TotalSeconds > patience)
                        End(new Finding(each.Name + " has not returned for " + patience + " s"));
        }
    }

    private void Soon(string what, Func<bool> holds)
    {
        DateTime began = DateTime.UtcNow;
        while (!holds())
        {
            if ((DateTime.UtcNow - began).TotalSeconds > within) throw new Finding(what + " has not happened within " + within + " s");
            Thread.Sleep(1);
        }
    }

    [DllImport("libc", EntryPoint = "_exit")]
    private static extern void ExitAtOnce(int status);

    /// Prints what is known, and ends the process, whose threads may hang.
    private void End(Exception found)
    {
        Console.WriteLine(found);
        lock (gate)
        {
            Console.WriteLine("\nthe latest calls:");
            foreach (string line in latest) Console.WriteLine("  " + line);
        }
        Console.WriteLine("to repeat: " + repeat);
        Console.Out.Flush();
        ExitAtOnce(1);
    }

    // ---- objects ----

    private bool OneIn(int n) => random.Next(n) == 0;

    private T Of<T>(params T[] values) => values[random.Next(values.Length)];

    private Thing Any(string kind)
    {
        List<Thing> there = world[kind];
        return there.Count == 0 ? null : there[random.Next(there.Count)];
    }

    private Thing Keep(string kind, IDisposable it, bool touched = false)
    {
        if (it == null) return null;
        var thing = new Thing(kind, it) { Touched = touched };
        world[kind].Add(thing);
        if (world[kind].Count > Most) Drop(kind);
        return thing;
    }

    /// An object that was left to the collector: the binding's own, and what it holds of the library.
    private sealed class Abandoned
    {
        internal readonly string Kind;
        private readonly WeakReference it, handle;

        internal Abandoned(Thing thing)
        {
            Kind = thing.Kind;
            it = new WeakReference(thing.It);
            PropertyInfo its = thing.It.GetType().GetProperty("Handle", BindingFlags.Instance | BindingFlags.NonPublic);
            handle = new WeakReference(its == null ? null : its.GetValue(thing.It));
        }

        internal bool IsHeld => it.IsAlive || handle.IsAlive;
    }

    /// Disposes of an object, or leaves it to the collector.
    private void Drop(string kind)
    {
        List<Thing> there = world[kind];
        if (there.Count == 0) return;
        Thing thing = there[random.Next(there.Count)];
        there.Remove(thing);
        if (thing.Touched || random.Next(10) < 7)
            Close(thing);
        else
            abandoned.Add(new Abandoned(thing));
    }

    private void Close(Thing thing)
    {
        Act(thing.Kind + ".Dispose", thing.It.Dispose);
        thing.Closed = true;
    }

    private Device OnDevice()
    {
        Thing other = OneIn(12) ? Any("Device") : null;
        return other != null ? (Device)other.It : OneIn(60) ? null : device;
    }

    private string NewFolder() => In("folder" + ++folders);

    // ---- devices and the library ----

    private void UseDevice()
    {
        Thing thing = OneIn(3) ? Any("Device") : null;
        Device it = thing == null ? device : (Device)thing.It;
        switch (random.Next(9))
        {
            case 0: Call("Device.Index", "", thing, () => it.Index); break;
            case 1: Call("Device.Kind", "", thing, () => it.Kind); break;
            case 2: Call("Device.MemoryBytes", "", thing, () => it.MemoryBytes); break;
            case 3: Call("Device.Name", "", thing, () => it.Name); break;
            case 4: Call("Device.Driver", "", thing, () => it.Driver); break;
            case 5: Call("Device.List", () => Device.List()); break;
            case 6: Act("Device.PreferWideCpuVectors", Device.PreferWideCpuVectors); break;
            default:
                string path = Of(In("tuning.json"), "/proc/nowhere/x.json", null);
                Act("Device.Tune", path, thing, () => it.Tune(path, (sender, told) =>
                {
                    if (told.Done % 2 == 0) throw new Mine();
                    told.Stop = true;
                }));
                break;
        }
    }

    private void MakeDevice()
    {
        string selector = Of("no such device", "1000", "-1", null, "\ud800", Environment.GetEnvironmentVariable("ECHOTRAIN_TEST_DEVICE"), "", "");
        var options = new DeviceOptions
        {
            MemoryLimitBytes = Of(0L, 1L << 30, -1L), HangSeconds = Of(0.0, -1.0, double.NaN),
            Tuning = Of(null, "", "/proc/nowhere.json", In("rows.jsonl")), Kernels = (DeviceKernels)random.Next(5), CacheDir = Of(null, ""),
            TrustDriver = OneIn(2)
        };
        switch (random.Next(4))
        {
            case 0: Keep("Device", Call("Device.new", selector, null, () => new Device(selector, options))); break;
            case 1: Call("Device.new", () => new Device(selector, (DeviceOptions)null)); break;
            case 2: Keep("Device", Call("Device.new", () => new Device(selector, 0, null))); break;
            default: Keep("Device", Call("Device.new", () => new Device(selector))); break;
        }
    }

    private void UseLibrary()
    {
        string root = Of(In("images"), In("images"), "/proc/nowhere", "", null);
        int what = random.Next(4);
        EventHandler<ProgressEventArgs> told = (sender, progress) =>
        {
            if (what == 1) throw new Mine();
            if (what == 2) Call("Device.Name", () => device.Name);
            progress.Stop = what == 3;
        };
        if (what == 0) told = null;
        switch (random.Next(7))
        {
            case 0: Call("Library.Version", () => Library.Version); break;
            case 1: Call("Library.Schema", () => Library.Schema(Of("stages", "layers", "job", "nonsense", "", null))); break;
            case 2:
                object options = Of<object>(null, new { per_shard = 2 }, new { format = "fast" }, new { nonsense = 1 },
                    new Dictionary<string, object> { ["per_shard"] = null }, "text");
                Call("Library.Pack", root + " " + options, null, () => Library.Pack(root, NewFolder(), options, told));
                break;
            case 3:
                string spec = Of(RowsJson(""), "{", null, "\0");
                double seconds = Of(0.002, 0, double.NaN);
                bool all = OneIn(30);  // which takes seconds
                Call("Library.TunePipeline", spec, null,
                     () => Library.TunePipeline(spec, seconds, 0, all ? null : told ?? ((sender, progress) => progress.Stop = true)));
                break;
            case 4:
                Thing pipeline = Any("Pipeline");
                string stats = pipeline == null ? Of("{}", null, "[1") : Call("Pipeline.Stats", "", pipeline, () => ((Pipeline)pipeline.It).Stats);
                Call("Library.ExplainStats", () => Library.ExplainStats(stats, Of("text", "svg", "json", "nonsense", null)));
                break;
            case 5:
                var runs = Of(new ReportedRun[0], new[] { new ReportedRun("a", Of("/proc/nowhere", null, finishedRun, finishedRun)) },
                              new ReportedRun[] { null }, null);
                Call("Library.WriteReport",
                     () => Library.WriteReport(Of("title", "title", null), runs, In("report.html"), Of(0.0, 0.5, 2.0)));
                break;
            default:
                Spec some = Of(Stages.Batch(2), Layers.Dense(3), Optimizers.Sgd(), Models.Mlp());
                Call("Spec.Set", () => some.Set(Of("name", null), Of<object>("a", 1, 2.5, null, new object(), double.NaN, new long[] { 1 })));
                Call("Spec.Then", () => some.Then(Of(Stages.Decode(), null)));
                Call("Spec.Kind", () => some.Kind);
                Call("Spec.Name", () => some.Name);
                Call("Spec.ToString", some.ToString);
                break;
        }
    }

    // ---- pipelines ----

    private string RowsJson(string more) => "{\"stages\": [{\"stage\": \"jsonl\", \"pattern\": \"" + In("rows.jsonl") +
        "\", \"columns\": \"image:f32,label:i32\"}, " + more + "{\"stage\": \"label\"}, {\"stage\": \"batch\", \"size\": 4}]}";

    private static Action<Batch> Samples(int count) => item =>
    {
        if ((item.Ordinal & 0xFFFFFFFFFF) >= count) return;
        item.Set("image", new float[] { item.Ordinal % 7, 1, 2, 3, 4, 5 }, 6).Set("label", new[] { (int)(item.Ordinal % 2) });
    };

    private sealed class Own
    {
        internal readonly WeakReference<Thing> Pipeline = new WeakReference<Thing>(null);
        internal bool Touches;
    }

    private static Thing Of(WeakReference<Thing> reference) => reference.TryGetTarget(out Thing thing) ? thing : null;

    /// A map that throws, returns nonsense or uses other objects for some samples. It keeps none of them: a pipeline that
    /// is not disposed of and that its own function refers to is never freed. Nor, with Mono's collector, is one to which a
    /// reference is left on the stack of a thread that serves it; such a one is always disposed of.
    private Action<Batch> Strange(int seed, Own own)
    {
        WeakReference<Thing> batch = new WeakReference<Thing>(Any("Batch")), model = new WeakReference<Thing>(Any("Model")),
            trainer = new WeakReference<Thing>(Any("Trainer")), pipeline = new WeakReference<Thing>(null);
        bool ends = OneIn(4);
        Thing touched = OneIn(2) ? Any("Pipeline") : null;
        if (touched != null)
        {
            own.Touches = touched.Touched = true;
            pipeline.SetTarget(touched);
        }
        return item =>
        {
            Thing other;
            switch ((item.Ordinal * 7919 + seed) % 60)
            {
                case 0: throw new Mine();
                case 1: throw new DllNotFoundException("no exception of the binding's, with \0 and \ud800");
                case 2:
                    foreach (string field in item.Fields) item.Remove(field);
                    break;
                case 3: item.Set("x", new float[3], 3); break;
                case 4: item.Dispose(); break;
                case 5:
                    Start(() =>  // sooner or later than the end of this call
                    {
                        Call("Batch.Fields", "of a function", null, () => item.Fields);
                        Call("Batch.ToArray", "of a function", null, () => item.ToArray<float>("image"));
                        Call("Batch.Set", "of a function", null, () => item.Set("y", new float[2], 2));
                    });
                    break;
                case 6:
                    if ((other = Of(batch)) != null) Call("Batch.ToString", "in a function", null, other.It.ToString);
                    break;
                case 7:
                    if ((other = Of(model)) != null) Call("Model.Json", "in a function", other, () => ((Model)other.It).Json);
                    break;
                case 8:
                    if ((other = Of(trainer)) != null) Call("Trainer.Result", "in a function", other, () => ((Trainer)other.It).Result(false));
                    break;
                case 9:
                    if ((other = Of(pipeline)) != null && other != Of(own.Pipeline))
                        Call("Pipeline.Stats", "in a function", other, () => ((Pipeline)other.It).Stats);
                    break;
                case 10:
                    if (own.Touches && ends && (other = Of(own.Pipeline)) != null)
                    {
                        Act("Pipeline.Dispose", "in a function of its own", null, other.It.Dispose);
                        other.Closed = true;
                    }
                    break;
                case 11: GC.Collect(); break;
                case 12:
                    using (Pipeline nested = new Pipeline(new { epochs = 1, threads = 1 }).Source("n", Samples(3)))
                        while (nested.Next() is Batch inner) inner.Dispose();
                    break;
                default: break;
            }
        };
    }

    private void MakePipeline()
    {
        if (OneIn(8))
        {
            string json = Of(RowsJson(""), "{", "{\"stages\": []}", null, "\0", "[]");
            Keep("Pipeline", Call("Pipeline.FromJson", json, null, () => Pipeline.FromJson(json)));
            return;
        }
        object options = Of<object>(null, null, new { epochs = 1 }, new { epochs = 2, threads = 2 },
            new { on_error = "skip", max_bad_share = 1.0, epochs = 1 }, new { nonsense = 1 }, new { seed = new object() },
            new { trace_events = 100, threads = 3 }, "text", new Dictionary<string, object> { ["seed"] = null });
        Pipeline made = Call("Pipeline.new", "" + options, null, () => new Pipeline(options));
        if (made == null) return;
        var own = new Own();
        int seed = random.Next(60), count = Of(0, 5, 17, 40), what = random.Next(9);
        string rows = In("rows.jsonl");
        Call("Pipeline.Add", "" + what, null, () =>
        {
            if (what <= 1) made.Add(Stages.Jsonl(rows, "image:f32,label:i32"), Stages.Label(), Stages.Batch(4));
            if (what == 2) made.Source("s", Samples(count)).Add(Stages.Batch(4));
            if (what >= 3 && what <= 5) made.Source("s", Samples(count)).Map("map", Strange(seed, own)).Add(Stages.Batch(2));
            if (what == 6) made.Source("s", Samples(count)).Add(Stages.Batch(2)).Map("map", Strange(seed, own));
            return made;
        });
        for (int i = what < 7 ? 0 : 1 + random.Next(3); i > 0; --i)
            switch (random.Next(6))
            {
                case 0: Call("Pipeline.Add", () => made.Add(Of(Stages.Batch(4), Layers.Dense(2), null, Stages.Batch(-1)))); break;
                case 1: Call("Pipeline.Add", () => made.Add((Spec[])null)); break;
                case 2: Call("Pipeline.Source", () => made.Source(Of("s", "", null, "\0"), Of(Samples(3), null))); break;
                case 3: Call("Pipeline.Map", () => made.Map(Of("m", "", null, "s"), Of(Samples(3), null))); break;
                case 4: Call("Pipeline.Add", () => made.Add(Stages.Jsonl(Of(rows, "/proc/nowhere"), Of("image:f32", "x")))); break;
                default: Call("Pipeline.ToString", made.ToString); break;
            }
        own.Pipeline.SetTarget(Keep("Pipeline", made, own.Touches));
    }

    private void Read()
    {
        Thing thing = Any("Pipeline");
        if (thing == null) return;
        var it = (Pipeline)thing.It;
        if (OneIn(3))
        {
            var source = new CancellationTokenSource();
            if (OneIn(6)) source.Cancel();
            Keep("Batch", Call("Pipeline.Next", source.IsCancellationRequested ? "cancelled" : "", thing, () => it.Next(source.Token)));
            Act("CancellationTokenSource.Cancel", source.Cancel);
            return;
        }
        IEnumerator<Batch> batches = Call("Pipeline.GetEnumerator", it.GetEnumerator);
        for (int i = Of(1, 3, 9); i > 0; --i)
        {
            if (!Call("Pipeline.MoveNext", "", thing, batches.MoveNext)) break;
            if (OneIn(2)) Keep("Batch", batches.Current);
        }
        Act("Pipeline.Enumerator.Dispose", batches.Dispose);
    }

    private void UsePipeline()
    {
        Thing thing = Any("Pipeline");
        if (thing == null) return;
        var it = (Pipeline)thing.It;
        switch (random.Next(11))
        {
            case 0: Call("Pipeline.Stats", "", thing, () => it.Stats); break;
            case 1: Call("Pipeline.Explain", "", thing, () => it.Explain(Of("text", "svg", "json", "nonsense", null))); break;
            case 2: Call("Pipeline.Trace", "", thing, it.Trace); break;
            case 3: Call("Pipeline.BadRecords", "", thing, () => it.BadRecords); break;
            case 4:
            case 5:
                string state = Call("Pipeline.Save", "", thing, it.Save);
                Thing other = Any("Pipeline");
                string given = OneIn(4) ? Of("{", "{}", null, "\0", "[]") : state;
                Act("Pipeline.Restore", given == null ? "null" : "", other, () => ((Pipeline)other.It).Restore(given));
                break;
            case 6: Act("Pipeline.Cancel", "", thing, it.Cancel); break;
            case 7: Call("Pipeline.Length", "", thing, () => it.Length); break;
            case 8: Call("Pipeline.ToString", it.ToString); break;
            case 9: if (OneIn(2)) Close(thing); break;
            default: Keep("Batch", Call("Pipeline.Next", "", thing, () => it.Next())); break;
        }
    }

    // ---- batches ----

    private static double Sum(ReadOnlySpan<float> values)
    {
        double sum = 0;
        foreach (float value in values) sum += value;
        return sum;
    }

    private static Batch Rows(int count) =>
        new Batch().Set("image", Enumerable.Repeat(1f, count * 6).ToArray(), count, 6).Set("label", new int[count], count);

    private void MakeBatch()
    {
        Thing thing = Keep("Batch", Call("Batch.new", () => new Batch()));
        for (int i = random.Next(3); i >= 0; --i) Set(thing);
    }

    private void Set(Thing thing)
    {
        var it = (Batch)thing.It;
        string field = Of("image", "label", "", "a\u0001", null, "x", "\0");
        long[] shape = Of(new long[] { 3 }, new long[] { 3, 6 }, new long[0], new long[] { -1 }, new[] { 1L << 40, 1L << 40 }, null,
            new long[] { 0, 5 }, new long[] { 1, 1, 1, 1, 1, 1, 1, 1, 3 }, new long[] { -3, -1 });
        int size = shape != null && OneIn(2) ? (int)Math.Min(18, Math.Max(0, shape.Aggregate(1L, (a, b) => a * b))) : Of(0, 1, 3, 18);
        bool none = OneIn(12);
        string detail = field + " [" + (shape == null ? "null" : string.Join(", ", shape)) + "] " + (none ? "null" : "" + size);
        switch (random.Next(5))
        {
            case 0: Call("Batch.Set", "float " + detail, thing, () => it.Set(field, none ? null : new float[size], shape)); break;
            case 1: Call("Batch.Set", "int " + detail, thing, () => it.Set(field, none ? null : new int[size], shape)); break;
            case 2: Call("Batch.Set", "byte " + detail, thing, () => it.Set(field, none ? null : new byte[size], shape)); break;
            case 3: Call("Batch.Set", "ushort " + detail, thing, () => it.Set(field, none ? null : new ushort[size], shape)); break;
            default: Call("Batch.Set", "double " + detail, thing, () => it.Set(field, new ReadOnlySpan<double>(new double[size]), shape)); break;
        }
    }

    private string FieldOf(Batch batch)
    {
        try
        {
            IReadOnlyList<string> fields = batch.Fields;
            return fields.Count == 0 ? "none" : fields[random.Next(fields.Count)];
        }
        catch (EchoTrainException)
        {
            return "image";
        }
    }

    private void UseBatch()
    {
        Thing thing = Any("Batch");
        if (thing == null) return;
        var it = (Batch)thing.It;
        string field = OneIn(4) ? Of("nowhere", "", null, "\ud800") : FieldOf(it);
        switch (random.Next(19))
        {
            case 0: Call("Batch.Fields", "", thing, () => it.Fields); break;
            case 1: Call("Batch.Shape", field, thing, () => it.Shape(field)); break;
            case 2: Call("Batch.DType", field, thing, () => it.DType(field)); break;
            case 3:
                Call("Batch.Span", field, thing, () =>
                {
                    double sum = Sum(it.Span<float>(field));
                    GC.KeepAlive(it);
                    return sum;
                });
                break;
            case 4:
            case 5:
                ReadOnlyMemory<float> memory = Call("Batch.Memory", field, thing, () => it.Memory<float>(field));
                memories.Add(memory);
                if (memories.Count > Most) memories.RemoveAt(0);
                break;
            case 6: Call("Batch.ToArray", field, thing, () => it.ToArray<int>(field)); break;
            case 7: Call("Batch.ToArray", field, thing, () => it.ToArray<double>(field)); break;
            case 8: Act("Batch.Remove", field, thing, () => it.Remove(field)); break;
            case 9: Call("Batch.Samples", "", thing, () => it.Samples); break;
            case 10: Call("Batch.Fresh", "", thing, () => it.Fresh); break;
            case 11: Call("Batch.Echoed", "", thing, () => it.Echoed); break;
            case 12: Call("Batch.Unique", "", thing, () => it.Unique); break;
            case 13: Call("Batch.MeanAge", "", thing, () => it.MeanAge); break;
            case 14: Call("Batch.Replica", "", thing, () => it.Replica); break;
            case 15: Call("Batch.Ordinal", "", thing, () => it.Ordinal); break;
            case 16: Call("Batch.Epoch", "", thing, () => it.Epoch); break;
            case 17: Call("Batch.ToString", it.ToString); break;
            default: Set(thing); break;
        }
        if (OneIn(20)) Close(thing);
        foreach (ReadOnlyMemory<float> each in memories)  // also of batches that are disposed of
            using (each.Pin()) Sum(each.Span);
    }

    // ---- models and trainers ----

    private Model GoodModel() =>
        OneIn(2) ? new Model(Layers.Dense(2)) : new Model(Layers.Dense(3, activation: "relu"), Layers.Dense(2));

    private void MakeModel()
    {
        string json = Of("{\"model\": \"mlp\", \"hidden\": [3]}", "{\"layers\": [{\"layer\": \"dense\", \"units\": 2}]}", "{", null, "\0");
        Func<Model> make = GoodModel;
        string name = "Model.new";
        switch (random.Next(8))
        {
            case 0:
                make = () => Model.FromJson(json);
                name = "Model.FromJson";
                break;
            case 1: make = () => new Model(Of(Layers.Dense(2), Stages.Batch(2), null, Layers.Dense(-1))); break;
            case 2: make = () => new Model(Of(new[] { "image" }, new string[] { null }, null), Layers.Dense(2)); break;
            case 3: make = () => new Model((Spec[])null); break;
            case 4: make = () => new Model(Models.Mlp()); break;
            case 5:
                string path = Of(In("model.onnx"), In("model.onnx"), "/proc/nowhere", null, In("rows.jsonl"));
                make = () => Model.FromOnnx(path, Of("", "", "x", null), OneIn(6) ? null : new[] { Layers.Dense(2) });
                name = "Model.FromOnnx";
                break;
        }
        Keep("Model", Call(name, json, null, make));
    }

    private void UseModel()
    {
        Thing thing = Any("Model");
        if (thing == null) return;
        var it = (Model)thing.It;
        switch (random.Next(9))
        {
            case 0: Call("Model.Freeze", "", thing, () => it.Freeze(Of("*", "dense_1.*", "", null, "x"))); break;
            case 1:
                Call("Model.Lora", "", thing, () => it.Lora(Of(new[] { "dense_1" }, new[] { "dense_1" }, new string[] { null }, null), Of(2, -1)));
                break;
            case 2: Call("Model.Quantize", "", thing, () => it.Quantize(Of(8, 4, 0, 3, -1))); break;
            case 3:
                string fields = Of("{\"image\": [6]}", "{\"image\": [-1]}", "{", null, "{\"x\": [6]}");
                Call("Model.Summary", fields, thing, () => it.Summary(fields));
                break;
            case 4: Call("Model.Json", "", thing, () => it.Json); break;
            case 5: Call("Model.ToString", it.ToString); break;
            case 6: Call("Model.Loss", "", thing, () => it.Loss(Of("mse", "softmax_cross_entropy", "nonsense", "", null))); break;
            case 7:
                object options = Of<object>(new { label_smoothing = 0.1 }, new { nonsense = 1 }, null,
                                            new { label_smoothing = double.NaN }, 3);
                Call("Model.Loss", "" + options, thing, () => it.Loss("softmax_cross_entropy", options));
                break;
            default: if (OneIn(2)) Close(thing); break;
        }
    }

    private void MakeTrainer()
    {
        Thing other = OneIn(3) ? Any("Model") : null;
        Model model = OneIn(30) ? null : other != null ? (Model)other.It : GoodModel();
        Spec optimizer = Of(Optimizers.Sgd(), Optimizers.Sgd(momentum: 0.9), Optimizers.Adam(), OneIn(10) ? null : Optimizers.Sgd(),
            OneIn(10) ? Layers.Dense(2) : Optimizers.Sgd());
        Spec schedule = OneIn(12) ? Of(null, Stages.Batch(2)) : Schedules.Schedule(0.01);
        Device on = OnDevice();
        Keep("Trainer", Call("Trainer.new", () => new Trainer(on, model, optimizer, schedule, Of(0, -1), Of(0, 10, -1))));
    }

    private Batch Given()
    {
        if (OneIn(5)) return (Batch)Any("Batch")?.It;
        if (OneIn(12)) return new Batch().Set("image", new float[24], 4, 6);
        return OneIn(20) ? new Batch() : Rows(Of(1, 4, 4));
    }

    private void UseTrainer()
    {
        Thing thing = Any("Trainer");
        if (thing == null)
        {
            MakeTrainer();
            return;
        }
        var it = (Trainer)thing.It;
        Batch given = Given();
        int rows = Of(1, 4);
        Batch gradient = OneIn(15) ? null : new Batch().Set("output", new float[rows * 2], rows, 2);
        string saved = In("saved"), nowhere = Of("/proc/nowhere/x", null, "", "\0"), file = OneIn(4) ? nowhere : In("model.onnx");
        string detail = given == null ? "null" : "";
        switch (random.Next(27))
        {
            case 0:
            case 1:
            case 2: Act("Trainer.Step", detail, thing, () => it.Step(given)); break;
            case 3:
            case 4: Call("Trainer.Result", "", thing, () => it.Result(OneIn(2))); break;
            case 5:
            case 6: Keep("Batch", Call("Trainer.Forward", detail, thing, () => it.Forward(given, OneIn(2)))); break;
            case 7: Act("Trainer.Backward", "", thing, () => it.Backward(gradient, OneIn(3))); break;
            case 8: Keep("Batch", Call("Trainer.BackwardToInputs", "", thing, () => it.BackwardToInputs(gradient, OneIn(3)))); break;
            case 9:
            case 10: Call("Trainer.Update", "", thing, it.Update); break;
            case 11: Keep("Batch", Call("Trainer.Gradients", "", thing, () => it.Gradients(Of("", "dense_1.weight", "x", null)))); break;
            case 12: Act("Trainer.SetGradients", "", thing, () => it.SetGradients(Of(null, given, new Batch().Set("dense_1.bias", new float[2], 2)))); break;
            case 13: Keep("Batch", Call("Trainer.Predict", detail, thing, () => it.Predict(given))); break;
            case 14:
                Keep("Batch", Call("Trainer.Detections", () => Trainer.Detections(
                    OneIn(2) ? given : new Batch().Set("output", new float[11], 1, 1, 11),
                    Of(0.5, 0.5, double.NaN, -1), 0.5, Of(10, 10, 0, -1))));
                break;
            case 15:
            case 16: Keep("Batch", Call("Trainer.Weights", "", thing, () => it.Weights(Of("", "", "dense_1.bias", "x", null)))); break;
            case 17: Act("Trainer.SetWeights", "", thing, () => it.SetWeights(Of(null, given, new Batch().Set("dense_1.bias", new float[2], 2)))); break;
            case 18:
                Act("Trainer.SetHyperparameter", "", thing,
                    () => it.SetHyperparameter(Of("momentum", "nonsense", "", null), Of(0.0, 0.5, -1.0, double.NaN)));
                break;
            case 19: Call("Trainer.Summary", "", thing, it.Summary); break;
            case 20: Call("Trainer.Profile", detail, thing, () => it.Profile(given, Of(1, 0, -1), Of("text", "json", "trace", "x", null))); break;
            case 21: Act("Trainer.Save", "", thing, () => it.Save(OneIn(4) ? nowhere : saved)); break;
            case 22: Act("Trainer.Load", "", thing, () => it.Load(OneIn(4) ? nowhere : saved)); break;
            case 23: Act("Trainer.ExportOnnx", "", thing, () => it.ExportOnnx(file)); break;
            case 24:
                Act("Trainer.LoadPytorch", "", thing,
                    () => it.LoadPytorch(OneIn(3) ? file : In("weights.safetensors"), Of("{}", "{}", "{", null, "[]")));
                break;
            case 25:
                Call("Trainer.ToString", it.ToString);
                Call("Trainer.Device", () => it.Device);
                break;
            default: if (OneIn(3)) Close(thing); break;
        }
    }

    /// A step pass by pass, now and then with a call too many.
    private void Pass()
    {
        Thing thing = Any("Trainer");
        if (thing == null) return;
        var it = (Trainer)thing.It;
        bool inputs = OneIn(2);
        if (Keep("Batch", Call("Trainer.Forward", "of a pass", thing, () => it.Forward(Rows(4), inputs))) == null) return;
        Batch gradient = new Batch().Set("output", new float[8], 4, 2);
        for (int i = Of(1, 1, 1, 2); i > 0; --i)
            if (inputs) Keep("Batch", Call("Trainer.BackwardToInputs", "of a pass", thing, () => it.BackwardToInputs(gradient, OneIn(3))));
            else Act("Trainer.Backward", "of a pass", thing, () => it.Backward(gradient));
        Batch gradients = Call("Trainer.Gradients", "of a pass", thing, () => it.Gradients());
        if (OneIn(2)) Act("Trainer.SetGradients", "of a pass", thing, () => it.SetGradients(gradients));
        Keep("Batch", gradients);
        for (int i = Of(1, 1, 1, 2); i > 0; --i) Call("Trainer.Update", "of a pass", thing, it.Update);
    }

    private Thing Input() => OneIn(2) ? Any("Pipeline") : Keep("Pipeline",
        new Pipeline(new { epochs = 2, threads = 2 }).Source("s", Samples(Of(3, 9, 17))).Add(Stages.Batch(4)));

    /// A handler that uses the trainer in its own call, disposes of it, cancels the pipeline, throws or stops.
    private EventHandler<EvaluationEventArgs> Handler(Thing trainer, Thing pipeline)
    {
        int what = random.Next(8);
        return (sender, told) =>
        {
            switch (what)
            {
                case 0: throw new Mine();
                case 1:
                    if (Call("Trainer.Predict", "in its own call", null, () => ((Trainer)trainer.It).Predict(Rows(2))) != null)
                        throw new Finding("a trainer predicts within its evaluation");
                    break;
                case 2: told.Stop = true; break;
                case 3: Act("Pipeline.Cancel", "under an evaluation", null, ((Pipeline)pipeline.It).Cancel); break;
                case 4: Close(trainer); break;
                case 5: Close(pipeline); break;
                case 6: GC.Collect(); break;
                default: break;
            }
        };
    }

    private void Evaluate()
    {
        Thing trainer = Any("Trainer"), pipeline = Input();
        if (trainer == null || pipeline == null) return;
        var it = (Trainer)trainer.It;
        EventHandler<EvaluationEventArgs> handler = OneIn(4) ? null : Handler(trainer, pipeline);
        it.EvaluationProgressed += handler;
        Call("Trainer.Evaluate", "", trainer, () => it.Evaluate(OneIn(20) ? null : (Pipeline)pipeline.It));
        it.EvaluationProgressed -= handler;
    }

    private void Fit()
    {
        Thing trainer = Any("Trainer"), pipeline = Input(), other = Input();
        if (trainer == null || pipeline == null || other == null) return;
        var it = (Trainer)trainer.It;
        int what = random.Next(6);
        EventHandler<StepEndedEventArgs> step = (sender, told) =>
        {
            if (what == 0) throw new Mine();
            if (what == 1) Call("Trainer.Predict", "in a step of Fit", null, () => it.Predict(Rows(2)));
        };
        EventHandler<EpochEndedEventArgs> epoch = (sender, told) =>
        {
            if (what == 2) throw new Mine();
            if (what == 3) Close(pipeline);
            told.Stop = what == 4;
        };
        EventHandler<EvaluationEventArgs> handler = OneIn(2) ? null : Handler(trainer, pipeline);
        it.StepEnded += step;
        it.EpochEnded += epoch;
        it.EvaluationProgressed += handler;
        Call("Trainer.Fit", "", trainer,
             () => it.Fit(OneIn(20) ? null : (Pipeline)pipeline.It, Of(1, 2, 0), OneIn(2) ? null : (Pipeline)other.It));
        it.StepEnded -= step;
        it.EpochEnded -= epoch;
        it.EvaluationProgressed -= handler;
    }

    // ---- jobs and runs ----

    private const string Delay = "{\"stage\": \"delay\", \"milliseconds\": 1000000}, ";

    private string JobJson(string between, string more) => "{\"pipeline\": " + RowsJson(between) +
        ", \"model\": {\"layers\": [{\"layer\": \"dense\", \"units\": 2}]}, \"optimizer\": {\"optimizer\": \"sgd\"}, \"schedule\": " +
        "{\"learning_rate\": 0.01}, " + more + "}";

    private string EvaluationJson(string between) => "\"evaluation\": {\"pipeline\": " + RowsJson(between) + "}";

    private static string Output(string at) => "\"output\": {\"dir\": \"" + at + "\"}";

    private void MakeJob()
    {
        bool stalls = OneIn(4), ranks = OneIn(8);
        string json = JobJson(stalls ? Delay : "", "\"train\": {\"steps\": " + Of(3, 40, 1000000) + ", \"progress_every\": 0.02}, " +
            (OneIn(2) ? EvaluationJson("") + ", " : "") +
            (ranks ? "\"parallel\": {\"devices\": [\"" + device.Name + "\", \"" + device.Name + "\"]}, " : "") +
            Output(OneIn(2) ? "" : NewFolder()));
        string text = OneIn(6) ? Of("{", "", null, "\0", "[]") : json;
        string[] overrides = OneIn(6) ? Of(new[] { "train.steps=2" }, new[] { "nonsense" }, new string[] { null }, null) : new string[0];
        Thing job;
        if (OneIn(4))
        {
            File.WriteAllText(In("job.json"), json);
            job = Keep("Job", Call("Job.Load", () => Job.Load(Of(In("job.json"), In("job.json"), "/proc/nowhere", null), overrides)));
        }
        else job = Keep("Job", Call("Job.Parse", () => Job.Parse(text, overrides)));
        if (job == null) return;
        job.Stalls = stalls;
        job.Ranks = ranks;
    }

    private void UseJob()
    {
        Thing thing = Any("Job");
        if (thing == null)
        {
            MakeJob();
            return;
        }
        var it = (Job)thing.It;
        Device on = OnDevice();
        switch (random.Next(7))
        {
            case 0: Call("Job.Json", "", thing, () => it.Json); break;
            case 1: Call("Job.OutputDir", "", thing, () => it.OutputDir); break;
            case 2: Call("Job.ToString", it.ToString); break;
            case 3:
                int what = random.Next(4);
                var source = new CancellationTokenSource();
                Call("Job.Advise", () => it.Advise(on, Of(0.005, 0.02, 0.0, double.NaN), OneIn(8), source.Token, (sender, told) =>
                {
                    if (what == 0) throw new Mine();
                    if (what == 1) source.Cancel();
                    told.Stop = what == 2;
                }));
                break;
            case 4: if (OneIn(3)) Close(thing); break;
            default:
                JobStart start = (JobStart)(OneIn(20) ? Of(-1, 9) : random.Next(5));
                int does = random.Next(6);
                Thing run = Keep("JobRun", Call("Job.Run", "" + start, thing, () => it.Run(on, start, default(CancellationToken),
                    does == 4 ? (EventHandler<EvaluationEventArgs>)null : (sender, told) =>
                    {
                        if (does == 0) throw new Mine();
                        if (does == 1) Call("JobRun.Stats", "in its own call", null, () => ((JobRun)sender).Stats);
                        if (does == 2) Act("JobRun.Stop", ((JobRun)sender).Stop);
                        told.Stop = does == 3;
                    })));
                if (run == null) break;
                run.Stalls = thing.Stalls;
                run.Ranks = thing.Ranks;
                break;
        }
    }

    private void UseRun()
    {
        Thing thing = Any("JobRun");
        if (thing == null) return;
        var it = (JobRun)thing.It;
        switch (random.Next(9))
        {
            case 0:
            case 1:
            case 2:
                IEnumerator<JobEvent> events = Call("JobRun.Events",
                    () => it.Events(thing.Stalls ? Of(0.01, 0.001) : Of(0, 0.01, -1, double.NaN)).GetEnumerator());
                for (int i = Of(1, 3, 6); i > 0; --i)
                    if (!Call("JobRun.MoveNext", "", null, events.MoveNext)) break;
                if (OneIn(2)) Act("JobRun.Enumerator.Dispose", events.Dispose);
                break;
            case 3:
                Trainer trainer = Call("JobRun.Trainer", () => it.Trainer);
                if (trainer != null && !thing.Stalls) Keep("Trainer", trainer);  // others would wait for a batch
                break;
            case 4:  // several ranks wait for a batch first
                if (!thing.Stalls || !thing.Ranks) Call("JobRun.Evaluate", "", thing, it.Evaluate);
                break;
            case 5: if (!thing.Stalls) Call("JobRun.Profile", "", thing, () => it.Profile(Of(1, 0), Of("text", "x", null))); break;
            case 6: Call("JobRun.Stats", "", thing, () => it.Stats); break;
            case 7: Act("JobRun.Stop", it.Stop); break;
            default: if (OneIn(2)) Close(thing); break;
        }
    }

    /// A run to its end, whose folder others find.
    private void FinishARun()
    {
        string output = NewFolder();
        Job job = Job.Parse(JobJson("", "\"train\": {\"steps\": 3}, " + EvaluationJson("") + ", " + Output(output)));
        JobRun run = Call("Job.Run", "to its end", null, () => job.Run(device, OneIn(2)));
        if (run == null) return;
        IEnumerator<JobEvent> events = Call("JobRun.GetEnumerator", run.GetEnumerator);
        for (bool last = false; Call("JobRun.MoveNext", "to its end", null, events.MoveNext);)
            if (!last && (last = events.Current.Kind == JobEventKind.End))
            {
                Call("JobRun.Evaluate", "at its end", null, run.Evaluate);
#pragma warning disable 618
                Act("JobRun.SetHyperparameter", () => run.SetHyperparameter("weight_decay", Of(0.1, -1)));
#pragma warning restore 618
            }
        finishedRun = output;
        JobRun again = Call("Job.Run", "of a folder that is finished", null, () => job.Run(device, (JobStart)random.Next(5)));
        if (again == null) return;
        Call("JobRun.Profile", "of a folder that is finished", null, () => again.Profile(1, Of("text", "json", "trace")));
        Keep("JobRun", again);
    }

    /// The first of two ranks of which the other brings the same. Its functions use the run that they serve.
    private sealed class Doubling : Transport
    {
        private readonly Walk walk;
        private readonly int fails, uses;
        internal volatile JobRun Run;
        private int reductions;

        internal Doubling(Walk walk, int fails, int uses) : base(0, 2)
        {
            this.walk = walk;
            this.fails = fails;
            this.uses = uses;
            Interlocked.Increment(ref walk.lent);
        }

        public override void AllReduce(Span<byte> data, TransportNumber number, TransportReduction reduction)
        {
            JobRun mine = Run;
            if (mine != null && uses > 0)
            {
                if (walk.Call("JobRun.Stats", "in a transport", null, () => mine.Stats) != null)
                    throw new Finding("a run is used in its transport");
                if (uses == 1) walk.Act("JobRun.Stop", "in a transport", null, mine.Stop);
                if (uses == 2) walk.Act("JobRun.Dispose", "in a transport", null, mine.Dispose);
                if (uses == 3) GC.Collect();
            }
            if (++reductions == fails)
                throw uses % 2 == 0 ? new RankLostException("the wire is cut", 1) : uses == 1 ? (Exception)new IOException("the wire is cut") : new Mine();
            if (reduction != TransportReduction.Sum) return;
            switch (number)
            {
                case TransportNumber.F32:
                    Span<float> floats = MemoryMarshal.Cast<byte, float>(data);
                    for (int i = 0; i < floats.Length; ++i) floats[i] *= 2;
                    break;
                case TransportNumber.F64:
                    Span<double> doubles = MemoryMarshal.Cast<byte, double>(data);
                    for (int i = 0; i < doubles.Length; ++i) doubles[i] *= 2;
                    break;
                case TransportNumber.I32:
                    Span<int> ints = MemoryMarshal.Cast<byte, int>(data);
                    for (int i = 0; i < ints.Length; ++i) ints[i] *= 2;
                    break;
                case TransportNumber.I64:
                    Span<long> longs = MemoryMarshal.Cast<byte, long>(data);
                    for (int i = 0; i < longs.Length; ++i) longs[i] *= 2;
                    break;
                default: throw new SocketException();
            }
        }

        public override void AllGather(ReadOnlySpan<byte> part, long[] sizes, Span<byte> data)
        {
            byte[] mine = part.ToArray();
            mine.CopyTo(data);
            mine.CopyTo(data.Slice(mine.Length));
        }

        public override void Broadcast(Span<byte> data, int root) { }

        public override Transport Split(int colour, int key) => colour < 0 ? null : new Doubling(walk, fails, uses) { Run = Run };

        public override void Abort(string reason)
        {
            if (uses == 4) throw new Mine();
        }

        public override void Close()
        {
            if (Interlocked.Decrement(ref walk.lent) < 0) throw new Finding("a transport is closed twice");
            if (uses == 4) throw new Mine();
        }
    }

    private sealed class NoTransport : Transport
    {
        internal NoTransport(int rank, int size) : base(rank, size) { }
    }

    private void RunWithTransport()
    {
        Job job = Job.Parse(JobJson("", "\"train\": {\"steps\": " + Of(3, 1000000) + ", \"progress_every\": 0.02}, " + Output("")));
        if (OneIn(10))
        {
            Call("Job.Run", "null transport", null, () => job.Run(device, JobStart.New, (Transport)null));
            Call("Job.Run", "null device", null, () => job.Run(null, JobStart.New, new NoTransport(0, 2)));
            Call("Transport.new", () => new NoTransport(Of(-1, 1, 2), 2));
            return;
        }
        var transport = new Doubling(this, Of(0, 1, 3, 9, 20), random.Next(6));
        JobRun run = Call("Job.Run", "transport", null, () => job.Run(device, JobStart.New, transport));
        if (run != null)
        {
            transport.Run = run;
            IEnumerator<JobEvent> events = run.Events(0.01).GetEnumerator();
            for (int i = 0; i < 4 && Call("JobRun.MoveNext", "with a transport", null, events.MoveNext); ++i) { }
            if (OneIn(3)) Call("JobRun.Trainer", "with a transport", null, () => run.Trainer.Weights());
            transport.Run = null;
            Act("JobRun.Dispose", run.Dispose);
        }
        Act("Job.Dispose", job.Dispose);
    }

    // ---- studies and servers ----

    private string StudyJson(string job, int steps, int trials) => "{\"job\": " + job + ", \"budget\": {\"steps\": " + steps +
        "}, \"evaluate\": {\"every_steps\": 2}, \"search\": {\"trials\": " + trials + ", \"searches\": 1, \"space\": " +
        "{\"schedule.learning_rate\": {\"from\": 1e-3, \"to\": 1e-1}}}}";

    private void MakeStudy()
    {
        File.WriteAllText(In("a_study.json"), StudyJson(JobJson("", EvaluationJson("")), Of(2, 1000000), 2));
        string file = OneIn(4) ? Of("/proc/nowhere", In("rows.jsonl"), "", null) : In("a_study.json");
        string[] overrides = OneIn(8) ? Of(new[] { "optimizer.momentum=0.5" }, new[] { "nonsense" }, new string[] { null }, null) : new string[0];
        Keep("Study", Call("Study.Load", file, null, () => Study.Load(file, overrides)));
    }

    private void UseStudy()
    {
        Thing thing = Any("Study");
        if (thing == null)
        {
            MakeStudy();
            return;
        }
        var it = (Study)thing.It;
        string where = Of("", folder, "/proc/nowhere", null, finishedStudy, finishedStudy);
        switch (random.Next(12))
        {
            case 0: Call("Study.Json", "", thing, () => it.Json); break;
            case 1: Call("Study.OutputDir", "", thing, () => it.OutputDir); break;
            case 2:
            case 3:
                string output = OneIn(20) ? null : OneIn(10) ? "" : NewFolder();
                Device on = OnDevice();
                Act("Study.Start", output, thing, () => it.Start(on, output, Of(1, 2, 0, -1, -2), OneIn(3)));
                break;
            case 4: Call("Study.Results", where, thing, () => it.Results(where)); break;
            case 5: Act("Study.WriteReport", where, thing, () => it.WriteReport(where)); break;
            case 6: Act("Study.Stop", "", thing, it.Stop); break;
            case 7: if (OneIn(2)) Close(thing); break;
            default:
                for (int i = Of(1, 4); i > 0; --i) Call("Study.NextEvent", "", thing, () => it.NextEvent(Of(0.02, 0, -1, double.NaN)));
                break;
        }
    }

    /// A study to its end, whose folder others find.
    private void FinishAStudy()
    {
        MakeStudy();
        Thing thing = Any("Study");
        if (thing == null) return;
        var it = (Study)thing.It;
        string output = NewFolder();
        Act("Study.Start", "to its end", thing, () => it.Start(device, output, 2));
        for (int i = 0; i < 100; ++i)
        {
            string told = Call("Study.NextEvent", "to its end", thing, () => it.NextEvent(0.1));
            if (told == null) break;
            if (told.Contains("\"kind\":\"end\"")) finishedStudy = output;
            if (i == 20) Act("Study.Stop", "", thing, it.Stop);
        }
    }

    private Job ServerJob(string meeting) => Job.Parse(JobJson("", "\"train\": {\"steps\": 4}, " + Output("") +
        ", \"parallel\": {\"algorithm\": \"downpour\", \"servers\": 1, \"size\": 1, \"timeout\": 60, \"rendezvous\": \"file:" + meeting + "\"}"));

    private void UseServer()
    {
        Thing thing = Any("Server");
        if (thing == null || OneIn(8))
        {
            Job job = OneIn(20) ? null : ServerJob(Directory.CreateDirectory(NewFolder()).FullName);
            int shard = OneIn(4) ? Of(1, -1) : 0;
            Server made = Call("Server.new", "" + shard, null, () => new Server(job, shard));
            Keep("Server", made);
            if (made == null || !OneIn(3)) return;
            // A worker, which trains to the end or loses its server.
            bool loses = OneIn(2);
            JobRun run = Call("Job.Run", "worker", null, () => job.Run(device, JobStart.New));
            if (run == null) return;
            if (loses) Act("Server.Stop", made.Stop);
            IEnumerator<JobEvent> events = run.GetEnumerator();
            while (Call("JobRun.MoveNext", "of a worker", null, events.MoveNext)) { }
            Act("JobRun.Dispose", run.Dispose);
            return;
        }
        var it = (Server)thing.It;
        switch (random.Next(5))
        {
            case 0: Call("Server.Status", "", thing, () => it.Status); break;
            case 1: Act("Server.Stop", "", thing, it.Stop); break;
            case 2: if (OneIn(2)) Close(thing); break;
            default: Call("Server.Wait", "", thing, () => it.Wait(Of(0, 0.001, -1, 2e6, double.NaN))); break;
        }
    }

    // ---- threads ----

    private Thread Start(Action action)
    {
        var thread = new Thread(() =>
        {
            try
            {
                action();
            }
            catch (Exception error)
            {
                lock (failures) failures.Add(error);
            }
        }) { IsBackground = true };
        thread.Start();
        return thread;
    }

    private void Ends(string what, Thread thread)
    {
        if (!thread.Join(TimeSpan.FromSeconds(within))) throw new Finding(what + " has not happened within " + within + " s");
    }

    /// Cancels or disposes of a pipeline whose source waits, under a reader or an evaluation on another thread.
    private void EndARead()
    {
        var gate = new ManualResetEventSlim();
        var waits = new ManualResetEventSlim();
        Pipeline pipeline = new Pipeline(new { threads = 2 }).Source("waits", item =>
        {
            waits.Set();
            gate.Wait(120000);
            item.Set("image", new float[6], 6).Set("label", new int[1]);
        }).Add(Stages.Batch(1));
        Thing trainer = OneIn(3) ? Any("Trainer") : null;
        var source = new CancellationTokenSource();
        Thread reader = Start(() =>
        {
            if (trainer == null) Call("Pipeline.Next", "waits", null, () => pipeline.Next(source.Token));
            else Call("Trainer.Evaluate", "waits", null, () => ((Trainer)trainer.It).Evaluate(pipeline));
        });
        // The trainer of an evaluation may refuse it at once.
        Soon("a call of the source", () => waits.IsSet || (trainer != null && !reader.IsAlive));
        if (OneIn(2))
        {
            Call("Pipeline.Stats", () => pipeline.Stats);
            if (trainer == null && OneIn(2)) Act("CancellationTokenSource.Cancel", "under a reader", null, source.Cancel);
            else Act("Pipeline.Cancel", "under a reader", null, pipeline.Cancel);
            Ends("the end of a call that was cancelled", reader);
            gate.Set();
        }
        else
        {
            gate.Set();
            Act("Pipeline.Dispose", "under a reader", null, pipeline.Dispose);
            if (OneIn(2)) Act("CancellationTokenSource.Cancel", "of a pipeline that is disposed of", null, source.Cancel);
            Ends("the end of a call whose pipeline was disposed of", reader);
        }
        Act("Pipeline.Dispose", pipeline.Dispose);
    }

    /// Stops or disposes of a run that waits for data, under a call of another thread.
    private void EndARun()
    {
        Job job = Job.Parse(JobJson(Delay, "\"train\": {\"steps\": 3, \"progress_every\": 3600}, " + EvaluationJson(Delay) + ", " + Output("")));
        var source = new CancellationTokenSource();
        JobRun run = job.Run(device, JobStart.New, source.Token);
        int what = random.Next(3);
        var began = new ManualResetEventSlim();
        Thread waiting = Start(() =>
        {
            began.Set();
            if (what == 0) Call("JobRun.MoveNext", "waits", null, run.GetEnumerator().MoveNext);
            if (what == 1) Call("JobRun.Evaluate", "waits", null, run.Evaluate);
            if (what == 2) Call("JobRun.Trainer", "waits", null, () => run.Trainer.Weights());
        });
        Soon("a thread", () => began.IsSet);
        Thread.Sleep(random.Next(30));
        if (what != 2 && OneIn(2)) Act("JobRun.Dispose", "under a call", null, run.Dispose);
        else if (what == 0 && OneIn(2)) Act("CancellationTokenSource.Cancel", "under a call", null, source.Cancel);
        else Act("JobRun.Stop", "under a call", null, run.Stop);
        Ends("the end of a call whose run was stopped", waiting);
        Act("JobRun.Dispose", run.Dispose);
        Act("CancellationTokenSource.Cancel", source.Cancel);
        Act("Job.Dispose", job.Dispose);
    }

    /// Stops or disposes of a study or a server, under a thread that waits for it.
    private void EndAService()
    {
        bool closes = OneIn(2);
        Thread waiting;
        if (OneIn(2))
        {
            File.WriteAllText(In("b_study.json"), StudyJson(JobJson(Delay, EvaluationJson("")), 5, 1));
            Study study = Study.Load(In("b_study.json"));
            study.Start(device, NewFolder(), 1);
            study.NextEvent(0);
            waiting = Start(() => Call("Study.NextEvent", "waits", null, () => study.NextEvent(1e5)));
            Thread.Sleep(random.Next(30));
            Act(closes ? "Study.Dispose" : "Study.Stop", "under a call", null, closes ? (Action)study.Dispose : study.Stop);
            Ends("the end of a call whose study was stopped", waiting);
            Act("Study.Dispose", study.Dispose);
            return;
        }
        var server = new Server(ServerJob(Directory.CreateDirectory(NewFolder()).FullName));
        waiting = Start(() => Call("Server.Wait", "waits", null, () => server.Wait(1e5)));
        Thread.Sleep(random.Next(30));
        Act(closes ? "Server.Dispose" : "Server.Stop", "under a call", null, closes ? (Action)server.Dispose : server.Stop);
        Ends("the end of a call whose server was stopped", waiting);
        Act("Server.Dispose", server.Dispose);
    }

    /// Threads that use one object while it is disposed of: each call is served or refused.
    private void Crowd()
    {
        Thing trainer = Any("Trainer"), pipeline = Any("Pipeline"), batch = Any("Batch"), run = Any("JobRun");
        if (trainer == null || pipeline == null || batch == null) return;
        bool closes = OneIn(2);
        Trainer itsTrainer = (Trainer)trainer.It;
        Pipeline itsPipeline = (Pipeline)pipeline.It;
        Batch itsBatch = (Batch)batch.It;
        var threads = new List<Thread>();
        for (int i = 0; i < 3; ++i)
        {
            var mine = new Random(random.Next());
            threads.Add(Start(() =>
            {
                for (int k = 0; k < 6; ++k)
                    switch (mine.Next(closes ? 11 : 8))
                    {
                        case 0: Act("Trainer.Step", "crowd", null, () => itsTrainer.Step(Rows(4))); break;
                        case 1: Call("Trainer.Result", "crowd", null, () => itsTrainer.Result(false)); break;
                        case 2: Call("Trainer.Weights", "crowd", null, () => itsTrainer.Weights()); break;
                        case 3: Call("Pipeline.Next", "crowd", null, () => itsPipeline.Next()); break;
                        case 4: Call("Pipeline.Stats", "crowd", null, () => itsPipeline.Stats); break;
                        case 5: Call("Batch.ToString", "crowd", null, itsBatch.ToString); break;
                        case 6: Call("Batch.ToArray", "crowd", null, () => itsBatch.ToArray<float>("image")); break;
                        case 7: if (run != null) Call("JobRun.Stats", "crowd", null, () => ((JobRun)run.It).Stats); break;
                        case 8: Close(trainer); break;
                        case 9: Close(pipeline); break;
                        default: Close(batch); break;
                    }
            }));
        }
        foreach (Thread thread in threads) thread.Join();
    }

    // ---- the walk ----

    private static KeyValuePair<int, Action> Step(int weight, Action action) => new KeyValuePair<int, Action>(weight, action);

    private KeyValuePair<int, Action>[] Steps()
    {
        return new[]
        {
            Step(10, MakePipeline), Step(20, Read), Step(20, UsePipeline), Step(6, MakeBatch), Step(20, UseBatch), Step(4, MakeModel),
            Step(8, UseModel), Step(3, MakeTrainer), Step(40, UseTrainer), Step(4, Pass), Step(5, Evaluate), Step(3, Fit), Step(3, MakeJob),
            Step(6, UseJob), Step(15, UseRun), Step(1, FinishARun), Step(1, RunWithTransport), Step(1, MakeStudy), Step(8, UseStudy),
            Step(1, FinishAStudy), Step(4, UseServer), Step(4, UseDevice), Step(1, MakeDevice), Step(5, UseLibrary), Step(2, EndARead),
            Step(1, EndARun), Step(1, EndAService), Step(1, Crowd), Step(1, GC.Collect), Step(12, () => Drop(Of(kinds)))
        };
    }

    /// Makes calls until there are so many, and closes everything. On a thread of its own, whose stack then holds nothing any
    /// more: Mono's collector takes all that lies on stacks for references.
    private void Live(long until)
    {
        Thread thread = Start(() =>
        {
            KeyValuePair<int, Action>[] steps = Steps();
            while (calls < until)
            {
                int drawn = random.Next(steps.Sum(step => step.Key));
                foreach (KeyValuePair<int, Action> step in steps)
                    if ((drawn -= step.Key) < 0)
                    {
                        step.Value();
                        break;
                    }
                lock (failures)
                    if (failures.Count > 0 || Finding.First != null) return;
            }
            memories.Clear();
            foreach (string kind in kinds)
                while (world[kind].Count > 0) Drop(kind);
        });
        thread.Join();
        lock (failures)
            if (failures.Count > 0) throw new Finding(failures[0].Message, failures[0]);
        if (Finding.First != null) throw new Finding(Finding.First.Message, Finding.First);
    }

    private static string[] Names() => Directory.GetDirectories("/proc/self/task").Select(task =>
    {
        try
        {
            return File.ReadAllText(Path.Combine(task, "comm")).Trim();
        }
        catch (IOException)
        {
            return "ended";
        }
    }).Where(name => name != "ended" && !name.StartsWith("Thread Pool")).ToArray();

    private static int[] Left() => new[] { Names().Length, Directory.GetFiles("/proc/self/fd").Length };

    /// How many objects that were left to Mono's collector may have threads and files, because it holds them: it takes every word
    /// on a stack or in a register for a reference. They are few; of more, the binding holds some.
    private int Excused()
    {
        abandoned.RemoveAll(one => !one.IsHeld);
        if (abandoned.Count > MostHeld + calls / CallsForOneMore) return 0;
        return abandoned.Count(one => one.Kind != "Batch" && one.Kind != "Model" && one.Kind != "Job");  // these have none
    }

    /// Waits until no more is left than `most`; null: until nothing changes any more.
    private int[] Rest(int[] most)
    {
        int[] before = { 0, 0 };
        int same = 0;
        DateTime began = DateTime.UtcNow;
        while (true)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
            Thread.Sleep(20);
            int[] now = Left();
            same = now.SequenceEqual(before) ? same + 1 : 0;
            before = now;
            int held = Excused();
            bool few = most == null ? same >= 5 : now[0] - held * ThreadsOfOne <= most[0] && now[1] - held * FilesOfOne <= most[1];
            if (few && Volatile.Read(ref lent) == 0) return now;
            if ((DateTime.UtcNow - began).TotalSeconds > within)
                throw new Finding("left when everything is disposed of: " + now[0] + " threads and " + now[1] + " files" +
                    (most == null ? "" : ", at most " + most[0] + " and " + most[1]) + "; " + lent + " transports; threads: " +
                    string.Join(", ", Names().GroupBy(name => name).Select(group => group.Key + ": " + group.Count())) +
                    "; held: " + string.Join(", ", abandoned.Where(one => one.IsHeld).Select(one => one.Kind)));
        }
    }

    /// What the walk has not called: public members of the binding.
    private IEnumerable<string> Uncalled()
    {
        foreach (Type type in new[] { typeof(Batch), typeof(Device), typeof(Job), typeof(JobRun), typeof(Library), typeof(Model),
                                      typeof(Pipeline), typeof(Server), typeof(Spec), typeof(Study), typeof(Trainer) })
            foreach (MemberInfo member in type.GetMembers(BindingFlags.Public | BindingFlags.Instance | BindingFlags.Static |
                                                          BindingFlags.DeclaredOnly))
            {
                string name = type.Name + "." + member.Name;
                bool part = member is ConstructorInfo || member is EventInfo || member is MethodInfo method && method.IsSpecialName;
                if (!part && !counts.ContainsKey(name)) yield return name;
            }
    }

    private void PrintCounts()
    {
        Console.WriteLine("   calls  succeeded");
        foreach (KeyValuePair<string, Count> each in counts)
            Console.WriteLine("{0,8} {1,10}  {2}", each.Value.Calls, each.Value.Succeeded, each.Key);
        foreach (KeyValuePair<string, int> each in thrown) Console.WriteLine("{0,8}  {1}", each.Value, each.Key);
        Console.WriteLine("never succeeded: " + string.Join(", ", counts.Where(each => each.Value.Succeeded == 0).Select(each => each.Key)));
        Console.WriteLine("not called: " + string.Join(", ", Uncalled().Distinct()));
    }

    public static int Main(string[] arguments)
    {
        var given = new Dictionary<string, string> { ["--calls"] = "10000", ["--seed"] = "1", ["--within"] = "10", ["--patience"] = "120",
                                                     ["--trace"] = "" };
        for (int i = 0; i < arguments.Length; i += 2)
        {
            if (i + 1 == arguments.Length || !given.ContainsKey(arguments[i]))
            {
                Console.Error.WriteLine("usage: Walk.exe [--calls N] [--seed S] [--within SECONDS] [--patience SECONDS] [--trace FILE]");
                return 2;
            }
            given[arguments[i]] = arguments[i + 1];
        }
        long most = long.Parse(given["--calls"]);
        repeat = "Walk.exe --calls " + most + " --seed " + given["--seed"];
        Console.WriteLine(repeat);
        Console.Out.Flush();
        string folder = Path.Combine(Path.GetTempPath(), "echotrain-walk-" + Path.GetRandomFileName());
        Directory.CreateDirectory(folder);
        StreamWriter trace = given["--trace"].Length == 0 ? null : new StreamWriter(given["--trace"]) { AutoFlush = true };
        int lines = 0;
        Log.Written += (sender, line) =>
        {
            if (++lines % 7 == 0) throw new Mine();
        };
        var walk = new Walk(int.Parse(given["--seed"]), double.Parse(given["--within"]), double.Parse(given["--patience"]), folder, trace);
        new Thread(walk.Watch) { IsBackground = true }.Start();
        int rests = 0;
        try
        {
            long between = Math.Min(Math.Max(most / 16, 200), 1000);
            int[] first = { 0, 0 };
            while (walk.calls < most || rests < 3)
            {
                walk.Live(walk.calls + between);
                int[] now = walk.Rest(++rests <= 2 ? null : first);
                if (rests > 2) continue;
                first[0] = Math.Max(first[0], now[0] + Workers);
                first[1] = Math.Max(first[1], now[1]);
            }
            walk.PrintCounts();
            int[] left = Left();
            Console.WriteLine(walk.calls + " calls, nothing found; everything was disposed of " + rests + " times; at the end there are " +
                left[0] + " threads and " + left[1] + " files, at most " + first[0] + " and " + first[1]);
        }
        catch (Exception found)
        {
            walk.End(found);
        }
        Directory.Delete(folder, true);
        return 0;
    }
}
