using System;

namespace EchoTrain
{
    /// <summary>What a reduction works on. The last two are what compressed gradients travel as (binary16, bfloat16).</summary>
    public enum TransportNumber { F32 = 0, F64 = 1, I32 = 2, I64 = 3, F16 = 4, BF16 = 5 }

    /// <summary>What becomes of the ranks' numbers.</summary>
    public enum TransportReduction { Sum = 0, Min = 1, Max = 2 }

    /// <summary>Ranks of a group are dead, frozen or unreachable: what a <see cref="Transport"/> throws where it knows
    /// which.</summary>
    public sealed class RankLostException : EchoTrainException
    {
        public int[] Missing { get; }

        public RankLostException(string message, params int[] missing) : base(ErrorCode.RankLost, message, null)
        {
            Missing = missing;
        }
    }

    /// <summary>One rank's end of a group of processes, over whatever moves data between them. Override what follows, and give an
    /// object of your class to <see cref="Job.Run(Device, JobStart, Transport, System.Threading.CancellationToken)"/>, on all ranks
    /// at the same time. Data-parallel training takes AllReduce, AllGather, Broadcast and Split; what needs another function says
    /// so.
    /// <para>All ranks call the same functions in the same order. Spans lie in the library's memory: they are valid during the call
    /// only. A function returns when its work is done; it should end within <see cref="Timeout"/> seconds. What it throws ends the
    /// run: it is the inner exception of the one that the run throws, of the code RankLost where it is a <see
    /// cref="RankLostException"/>, a TimeoutException, a SocketException or an IOException. After that only Abort and Close are
    /// called.</para>
    /// <para>Functions are called on threads of this library's, one at a time; a transport that Split makes is called at the same
    /// time as this one.</para></summary>
    public abstract class Transport
    {
        public int Rank { get; }
        public int Size { get; }

        /// <summary>Of the function that is being called, in seconds.</summary>
        public double Timeout { get; internal set; } = 60;

        protected Transport(int rank, int size)
        {
            if (rank < 0 || rank >= size)
                throw new ArgumentOutOfRangeException(nameof(rank),
                    "rank " + rank + " of " + size + ": ranks count from 0 to the size less one");
            Rank = rank;
            Size = size;
        }

        /// <summary>Every number in <paramref name="data"/> becomes the reduction of that of all ranks, with the same bits on all
        /// of them.</summary>
        public virtual void AllReduce(Span<byte> data, TransportNumber number, TransportReduction reduction) =>
            throw Lacks(nameof(AllReduce));

        /// <summary><paramref name="part"/> becomes this rank's part of the reduction of <paramref name="data"/>, whose parts
        /// have <paramref name="counts"/> numbers.</summary>
        public virtual void ReduceScatter(ReadOnlySpan<byte> data, long[] counts, Span<byte> part, TransportNumber number,
                                          TransportReduction reduction) => throw Lacks(nameof(ReduceScatter));

        /// <summary><paramref name="data"/> becomes the parts of all ranks, which have <paramref name="sizes"/> bytes, in their
        /// order.</summary>
        public virtual void AllGather(ReadOnlySpan<byte> part, long[] sizes, Span<byte> data) =>
            throw Lacks(nameof(AllGather));

        /// <summary><paramref name="data"/> becomes that of the rank <paramref name="root"/>.</summary>
        public virtual void Broadcast(Span<byte> data, int root) => throw Lacks(nameof(Broadcast));

        /// <summary>Returns when all ranks have called it.</summary>
        public virtual void Barrier() => throw Lacks(nameof(Barrier));

        /// <summary>The n-th send with a tag meets the n-th <see cref="Receive"/> with it.</summary>
        public virtual void Send(ReadOnlySpan<byte> data, int to, int tag) => throw Lacks(nameof(Send));

        public virtual void Receive(Span<byte> data, int from, int tag) => throw Lacks(nameof(Receive));

        /// <summary>A new transport between the ranks that give the same colour, ordered by key, then by rank; null for a negative
        /// colour. All ranks call it.</summary>
        public virtual Transport Split(int colour, int key) => throw Lacks(nameof(Split));

        /// <summary>Lets the function that waits, here and on other ranks, throw. Called on another thread. Without it the others
        /// learn by their time-outs that this rank is gone.</summary>
        public virtual void Abort(string reason) { }

        /// <summary>Called once, at the end: waits until the other ranks have what this one sent.</summary>
        public virtual void Close() { }

        private EchoTrainException Lacks(string function) =>
            new EchoTrainException(ErrorCode.Unsupported, GetType().Name + " has no function " + function, null);
    }
}
