using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Threading;
using EchoTrain;

/// Several devices in one process, and ranks over a transport that is written in C#: here threads of one process.
public static partial class Behaviour
{
    private static void TransportTests()
    {
        Test("two devices, and two ranks over a transport, train alike", Alike);
        Test("what a transport throws ends the run on all ranks", CutWires);
        Test("a transport may stop and dispose of the run while another thread disposes of it", EndedTwice);
        Test("a run is disposed of by its transport, which uses nothing else of it", EndedByItsTransport);
        Test("what needs a function that a transport lacks", Lacking);
    }

    /// Where threads meet with what they bring.
    private sealed class Place
    {
        internal readonly byte[][] Brought = new byte[2][];
        private readonly Dictionary<int, Place> parts = new Dictionary<int, Place>();
        private string why = "";
        private int here, meetings;

        internal void Meet(int rank, byte[] brings, double timeout)
        {
            lock (Brought)
            {
                Brought[rank] = brings;
                Arrive(rank, timeout);
            }
        }

        /// When all have read what was brought.
        internal void Leave(int rank, double timeout)
        {
            lock (Brought) Arrive(rank, timeout);
        }

        private void Arrive(int rank, double timeout)
        {
            int meeting = meetings;
            if (++here == Brought.Length)
            {
                here = 0;
                ++meetings;
                Monitor.PulseAll(Brought);
            }
            DateTime end = DateTime.UtcNow.AddSeconds(timeout);
            while (meetings == meeting && why.Length == 0 && DateTime.UtcNow < end)
                Monitor.Wait(Brought, TimeSpan.FromSeconds(1));
            if (meetings == meeting) throw new RankLostException(why.Length > 0 ? why : "nobody came", 1 - rank);
        }

        internal Place Part(int colour)
        {
            lock (Brought)
            {
                if (!parts.ContainsKey(colour)) parts[colour] = new Place();
                return parts[colour];
            }
        }

        internal void Close(string reason)
        {
            lock (Brought)
            {
                if (why.Length == 0) why = reason;
                Monitor.PulseAll(Brought);
            }
        }
    }

    private class Wire : Transport
    {
        internal static int Closed;
        protected readonly Place place;

        internal Wire(Place place, int rank) : base(rank, 2) { this.place = place; }

        public override void AllReduce(Span<byte> data, TransportNumber number, TransportReduction reduction)
        {
            place.Meet(Rank, data.ToArray(), Timeout);
            Span<byte> a = place.Brought[0], b = place.Brought[1];
            switch (number)
            {
                case TransportNumber.F32: Reduce<float>(a, b, data, (x, y) => (float)Of(reduction, x, y)); break;
                case TransportNumber.F64: Reduce<double>(a, b, data, (x, y) => Of(reduction, x, y)); break;
                case TransportNumber.I32: Reduce<int>(a, b, data, (x, y) => (int)Of(reduction, x, y)); break;
                default: Reduce<long>(a, b, data, (x, y) => (long)Of(reduction, x, y)); break;
            }
            place.Leave(Rank, Timeout);
        }

        private static void Reduce<T>(Span<byte> a, Span<byte> b, Span<byte> to, Func<T, T, T> of) where T : struct
        {
            Span<T> first = MemoryMarshal.Cast<byte, T>(a), second = MemoryMarshal.Cast<byte, T>(b),
                    result = MemoryMarshal.Cast<byte, T>(to);
            for (int i = 0; i < result.Length; ++i) result[i] = of(first[i], second[i]);
        }

        // Of two floats, and of the small integers that ranks exchange, the sum as a double is rounded as their own.
        private static double Of(TransportReduction reduction, double a, double b) =>
            reduction == TransportReduction.Sum ? a + b : reduction == TransportReduction.Min ? Math.Min(a, b) : Math.Max(a, b);

        public override void AllGather(ReadOnlySpan<byte> part, long[] sizes, Span<byte> data)
        {
            place.Meet(Rank, part.ToArray(), Timeout);
            place.Brought.SelectMany(brought => brought).ToArray().AsSpan().CopyTo(data);
            place.Leave(Rank, Timeout);
        }

        public override void Broadcast(Span<byte> data, int root)
        {
            place.Meet(Rank, data.ToArray(), Timeout);
            place.Brought[root].AsSpan().CopyTo(data);
            place.Leave(Rank, Timeout);
        }

        public override Transport Split(int colour, int key) => new Wire(place.Part(colour), Rank);

        public override void Abort(string reason) => place.Close(reason);

        public override void Close() => Interlocked.Increment(ref Closed);
    }

    private sealed class CutWire : Wire
    {
        private readonly Exception why;
        private int calls;

        internal CutWire(Place place, int rank, Exception why) : base(place, rank) { this.why = why; }

        public override void AllReduce(Span<byte> data, TransportNumber number, TransportReduction reduction)
        {
            if (++calls == 5) throw why;
            base.AllReduce(data, number, reduction);
        }
    }

    /// Calls a function of the test before each reduction of gradients but the first.
    private sealed class CallingWire : Wire
    {
        internal readonly ManualResetEventSlim Aborted = new ManualResetEventSlim();
        private readonly Action<CallingWire> inside;
        private int gradients;

        internal CallingWire(Place place, int rank, Action<CallingWire> inside) : base(place, rank) { this.inside = inside; }

        public override Transport Split(int colour, int key) => new CallingWire(place.Part(colour), Rank, inside);

        public override void AllReduce(Span<byte> data, TransportNumber number, TransportReduction reduction)
        {
            if (number == TransportNumber.F32 && ++gradients > 1) inside(this);
            base.AllReduce(data, number, reduction);
        }

        public override void Abort(string reason)
        {
            base.Abort(reason);
            Aborted.Set();
        }
    }

    private sealed class NoWire : Transport
    {
        internal NoWire(int rank, int size) : base(rank, size) { }
    }

    // The errors of the ranks, null for those that came to the end.
    private static Exception[] Together(Job job, params Transport[] ranks)
    {
        var errors = new Exception[ranks.Length];
        var threads = ranks.Select(rank => new Thread(() =>
        {
            try
            {
                using (JobRun run = job.Run(MakeDevice(), JobStart.New, rank)) run.Last();
            }
            catch (Exception error)
            {
                errors[rank.Rank] = error;
            }
        })).ToArray();
        foreach (Thread thread in threads) thread.Start();
        foreach (Thread thread in threads) Expect(thread.Join(120000), "a rank hangs");
        return errors;
    }

    private static Job SmallJob(string folder, params string[] overrides) => Job.Parse(JobJson(), overrides.Concat(new[]
        { "train.steps=6", "output.tensorboard=false", "output.dir=" + (folder ?? "\"\"") }).ToArray());

    private static string[] Losses(string folder) => File.ReadAllLines(Path.Combine(folder, "metrics.jsonl"))
        .Where(line => line.Contains("\"kind\":\"step\"")).Select(line =>
        {
            int at = line.IndexOf("\"loss\":");
            return line.Substring(at, line.IndexOf(',', at) - at);
        }).ToArray();

    private static void Alike()
    {
        string devices = Path.Combine(Path.GetTempPath(), Path.GetRandomFileName()), ranks = devices + "-ranks";
        string name = MakeDevice().Name;
        JobEvent last = SmallJob(devices, "parallel.devices=[\"" + name + "\", \"" + name + "\"]").Run(MakeDevice()).Last();
        Expect(last.Kind == JobEventKind.End && last.Step == 6, last.Step);
        Wire.Closed = 0;
        var place = new Place();
        Exception[] errors = Together(SmallJob(ranks), new Wire(place, 0), new Wire(place, 1));
        Expect(errors.All(error => error == null), string.Join("\n", (object[])errors));
        Expect(Wire.Closed == 4, Wire.Closed);
        string[] ofDevices = Losses(devices), ofRanks = Losses(ranks);
        Expect(ofDevices.Length == 6 && ofDevices.SequenceEqual(ofRanks),
               string.Join(" ", ofDevices) + " and " + string.Join(" ", ofRanks));
        Directory.Delete(devices, true);
        Directory.Delete(ranks, true);
    }

    private static void CutWires()
    {
        var place = new Place();
        Exception[] errors = Together(SmallJob(null), new Wire(place, 0),
                                      new CutWire(place, 1, new InvalidOperationException("the wire is cut")));
        var other = (EchoTrainException)errors[0];
        var own = (EchoTrainException)errors[1];
        Expect(own.Code == ErrorCode.Callback && own.InnerException is InvalidOperationException, own);
        Expect(other.Code == ErrorCode.RankLost && other.Message.Contains("the wire is cut"), other);
        place = new Place();
        errors = Together(SmallJob(null), new Wire(place, 0), new CutWire(place, 1, new IOException("refused")));
        own = (EchoTrainException)errors[1];
        Expect(own.Code == ErrorCode.RankLost && own.InnerException is IOException, own);
        place = new Place();  // a text that C cannot hold
        errors = Together(SmallJob(null), new Wire(place, 0), new CutWire(place, 1, new FormatException("'12\0\ud800'")));
        own = (EchoTrainException)errors[1];
        Expect(own.Code == ErrorCode.Callback && own.InnerException is FormatException && own.Message.Contains("'12?"), own);
    }

    // Calls `inside` in a function of a run's transport, while no call on the run is in progress, and `meanwhile` on
    // another thread. Rank 1 is left alone.
    private static void InATransport(Action<JobRun, CallingWire> inside, Action<JobRun> meanwhile)
    {
        var place = new Place();
        Job job = SmallJob(null, "train.steps=1000000000");
        var other = new Thread(() => Fails<EchoTrainException>(() =>
        {
            using (JobRun its = job.Run(MakeDevice(), JobStart.New, new Wire(place, 1))) its.Last();
        })) { IsBackground = true };
        other.Start();
        var held = new ManualResetEventSlim();
        var idle = new ManualResetEventSlim();
        JobRun run = null;
        run = job.Run(MakeDevice(), JobStart.New, new CallingWire(place, 0, wire =>
        {
            held.Set();
            idle.Wait();
            inside(run, wire);
        }));
        IEnumerator<JobEvent> events = run.Events(1e-9).GetEnumerator();
        while (!held.Wait(100)) events.MoveNext();
        idle.Set();
        meanwhile(run);
        Expect(other.Join(120000), "the other rank hangs");
    }

    private static void EndedTwice()
    {
        foreach (Action<JobRun> end in new Action<JobRun>[] { run => run.Stop(), run => run.Dispose() })
            InATransport((run, wire) =>
            {
                wire.Aborted.Wait(60000);  // by the other thread's Dispose
                end(run);
            }, run =>
            {
                var disposer = new Thread(run.Dispose) { IsBackground = true };
                disposer.Start();
                Expect(disposer.Join(60000), "the transport waits for Dispose, which waits for the transport");
            });
    }

    private static void EndedByItsTransport()
    {
        Exception failure = null;
        var disposed = new ManualResetEventSlim();
        using (Trainer trainer = MakeTrainer())
            InATransport((run, wire) =>
            {
                try
                {
                    FailsWith(ErrorCode.State, "the run is used by a function of a transport", () => run.Stats.ToString());
                    FailsWith(ErrorCode.State, "the trainer is used by a function of a transport", () => trainer.Summary());
                    run.Dispose();
                }
                catch (Exception error)
                {
                    failure = error;
                }
                disposed.Set();
            }, run => Expect(disposed.Wait(60000), "Dispose waits for the transport that has called it"));
        Expect(failure == null, failure);
    }

    private static void Lacking()
    {
        FailsWith(ErrorCode.Unsupported, "NoWire has no function Split: ranks exchange gradients",
                  () => SmallJob(null).Run(MakeDevice(), JobStart.New, new NoWire(0, 1)));
        Fails<ArgumentNullException>(() => SmallJob(null).Run(MakeDevice(), JobStart.New, null));
        Fails<ArgumentOutOfRangeException>(() => new NoWire(2, 2));
        // The run that does not begin is its owner, too.
        Job disposed = SmallJob(null);
        disposed.Dispose();
        Wire.Closed = 0;
        FailsWith(ErrorCode.State, "the job is closed", () => disposed.Run(MakeDevice(), JobStart.New, new Wire(new Place(), 0)));
        Expect(Wire.Closed == 1, Wire.Closed);
    }
}
