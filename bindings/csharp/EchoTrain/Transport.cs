using System;

namespace EchoTrain
{
    /// <summary>The element types of reductions. The last two (binary16, bfloat16) are those of
    /// compressed gradients.</summary>
    public enum TransportNumber { F32 = 0, F64 = 1, I32 = 2, I64 = 3, F16 = 4, BF16 = 5 }

    /// <summary>The kinds of reductions.</summary>
    public enum TransportReduction { Sum = 0, Min = 1, Max = 2 }

    /// <summary>Ranks of a group are dead, frozen or unreachable. A <see cref="Transport"/> throws
    /// it if it knows which.</summary>
    public sealed class RankLostException : EchoTrainException
    {
        public int[] Missing { get; }

        public RankLostException(string message, params int[] missing) : base(ErrorCode.RankLost, message, null)
        {
            Missing = missing;
        }
    }

    /// <summary>One rank's end of a group of processes, over whatever moves data between them.
    /// Override its methods, and pass an object of your class to <see cref="Job.Run(Device,
    /// JobStart, Transport, System.Threading.CancellationToken)"/>, on all ranks at the same time.
    /// Data-parallel training needs AllReduce, AllGather, Broadcast and Split; features that need
    /// another method say so.
    /// <para>All ranks call the same methods in the same order. Spans are in
    /// the library's memory and valid only during the call. A method returns when its work is done,
    /// and should end within <see cref="Timeout"/> seconds. An exception ends the run and is the
    /// inner exception of the one that the run throws. The code of that one is RankLost for a <see
    /// cref="RankLostException"/>, a TimeoutException, a SocketException or an IOException. After
    /// that only Abort and Close are called.</para>
    /// <para>Methods are called on threads of this
    /// library, one at a time. A transport that Split returns may be called at the same time as
    /// this one.</para></summary>
    public abstract class Transport
    {
        public int Rank { get; }
        public int Size { get; }

        /// <summary>The time limit of the method that is being called, in seconds.</summary>
        public double Timeout { get; internal set; } = 60;

        protected Transport(int rank, int size)
        {
            if (rank < 0 || rank >= size)
                throw new ArgumentOutOfRangeException(nameof(rank), "rank " + rank + " of " + size +
                                                      ": ranks are numbered from 0 to the size minus 1");
            Rank = rank;
            Size = size;
        }

        /// <summary>Replaces each number in <paramref name="data"/> by its reduction over all
        /// ranks, with the same bits on all of them.</summary>
        public virtual void AllReduce(Span<byte> data, TransportNumber number, TransportReduction reduction) =>
            throw Lacks(nameof(AllReduce));

        /// <summary>Reduces <paramref name="data"/> over all ranks and writes this rank's part of
        /// it to <paramref name="part"/>; the parts have <paramref name="counts"/>
        /// numbers.</summary>
        public virtual void ReduceScatter(ReadOnlySpan<byte> data, long[] counts, Span<byte> part, TransportNumber number,
                                          TransportReduction reduction) => throw Lacks(nameof(ReduceScatter));

        /// <summary>Concatenates the parts of all ranks, which have <paramref name="sizes"/> bytes,
        /// in <paramref name="data"/>, in rank order.</summary>
        public virtual void AllGather(ReadOnlySpan<byte> part, long[] sizes, Span<byte> data) =>
            throw Lacks(nameof(AllGather));

        /// <summary>Copies <paramref name="data"/> from the rank <paramref name="root"/> to all
        /// ranks.</summary>
        public virtual void Broadcast(Span<byte> data, int root) => throw Lacks(nameof(Broadcast));

        /// <summary>Returns when all ranks have called it.</summary>
        public virtual void Barrier() => throw Lacks(nameof(Barrier));

        /// <summary>Sends to another rank. The n-th send with a tag matches the n-th <see
        /// cref="Receive"/> with that tag.</summary>
        public virtual void Send(ReadOnlySpan<byte> data, int to, int tag) => throw Lacks(nameof(Send));

        public virtual void Receive(Span<byte> data, int from, int tag) => throw Lacks(nameof(Receive));

        /// <summary>Returns a new transport between the ranks that pass the same colour, ordered by
        /// key, then by rank; null for a negative colour. All ranks call it.</summary>
        public virtual Transport Split(int colour, int key) => throw Lacks(nameof(Split));

        /// <summary>Makes methods that are waiting, here and on other ranks, throw. It is called on
        /// another thread. Without it, the other ranks notice only by their time-outs that this
        /// rank is gone.</summary>
        public virtual void Abort(string reason) { }

        /// <summary>Called once, at the end. Waits until the other ranks have received what this
        /// one sent.</summary>
        public virtual void Close() { }

        private EchoTrainException Lacks(string function) =>
            new EchoTrainException(ErrorCode.Unsupported, GetType().Name + " has no function " + function, null);
    }
}
