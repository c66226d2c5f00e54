using System;
using System.Buffers;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.InteropServices;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>Element types of fields.</summary>
    public enum DType { U8 = 0, I32 = 1, F32 = 2, U16 = 3 }

    /// <summary>Named tensors: a batch, or in a map function a single sample. After <see
    /// cref="Dispose"/> its members throw.</summary>
    public sealed class Batch : IDisposable
    {
        private BatchHandle handle;  // null once the call of a map function is over

        /// <summary>Creates an empty batch, for a trainer without a pipeline.</summary>
        public Batch()
        {
            Natives.Load();
            handle = new BatchHandle();
        }

        internal Batch(BatchHandle handle) { this.handle = handle; }

        // Calls that use the handle hold this lock, so that neither Dispose() nor the end of a map
        // function interrupts them.
        private readonly object gate = new object();

        /// Returns the result of <paramref name="use"/>; the handle stays valid during the call.
        internal T With<T>(Func<BatchHandle, T> use)
        {
            lock (gate)
            {
                if (handle == null)
                    throw new EchoTrainException(ErrorCode.State, "the item of a map function is valid during its call only", null);
                return use(handle);
            }
        }

        /// The argument, which must not be null.
        internal static Batch Given(Batch batch, string argument) => batch ?? throw new ArgumentNullException(argument);

        internal void With(Action<BatchHandle> use) => With(fields => { use(fields); return true; });

        internal void Expire()
        {
            lock (gate) handle = null;
        }

        /// <summary>The names of the fields.</summary>
        public IReadOnlyList<string> Fields => With(fields => fields.fields().ToList());

        private T WithTensor<T>(string field, Func<Tensor, T> use) => With(fields =>
        {
            using (Tensor tensor = fields.tensor(field)) return use(tensor);
        });

        /// <summary>Returns the field's extents, outermost first: [N, H, W, C].</summary>
        public long[] Shape(string field) => WithTensor(field, tensor => tensor.shape().ToArray());

        public DType DType(string field) => WithTensor(field, tensor => (DType)tensor.dtype());

        private static int CountOf<T>(string field, Tensor tensor) where T : struct
        {
            var dtype = (DType)tensor.dtype();
            if (typeof(T) != TypeOf(dtype))
                throw new ArgumentException("field '" + field + "' is " + dtype + ", not " + typeof(T));
            return checked((int)(tensor.size_bytes() / Marshal.SizeOf<T>()));
        }

        private static unsafe ReadOnlySpan<T> SpanOf<T>(string field, Tensor tensor) where T : struct =>
            new ReadOnlySpan<T>((void*)tensor.address(), CountOf<T>(field, tensor));

        /// <summary>Returns the field's values (byte, ushort, int or float) without a copy, on the
        /// library's memory. They are valid until any thread disposes of the batch or the garbage
        /// collector frees it: a span does not keep the batch alive, so hold the batch in a
        /// <c>using</c>, or call <c>GC.KeepAlive(batch)</c> after the last use of the span.</summary>
        public ReadOnlySpan<T> Span<T>(string field) where T : struct
        {
            lock (gate)
                using (Tensor tensor = With(fields => fields.tensor(field))) return SpanOf<T>(field, tensor);
        }

        /// <summary>Returns the field's values (byte, ushort, int or float) without a copy. The
        /// result keeps the library's memory alive, also beyond the batch, and so does a handle of
        /// its <c>Pin()</c>. Its <c>Span</c> keeps nothing alive: hold such a handle in a
        /// <c>using</c> around the uses of the span. Do not write to the memory.</summary>
        public ReadOnlyMemory<T> Memory<T>(string field) where T : struct
        {
            Tensor tensor = With(fields => fields.tensor(field));
            try
            {
                return new FieldMemory<T>(tensor, CountOf<T>(field, tensor)).Memory;
            }
            catch
            {
                tensor.Dispose();
                throw;
            }
        }

        /// Keeps a field's memory as long as anything refers to this object.
        private sealed unsafe class FieldMemory<T> : MemoryManager<T> where T : struct
        {
            private readonly Tensor tensor;  // its finalizer frees the memory
            private readonly int count;
            private readonly long bytes;

            internal FieldMemory(Tensor tensor, int count)
            {
                this.tensor = tensor;
                this.count = count;
                bytes = Math.Max(tensor.size_bytes(), 1);
                GC.AddMemoryPressure(bytes);  // which the garbage collector cannot see
            }

            // Also runs where the constructor threw.
            ~FieldMemory()
            {
                if (bytes > 0) GC.RemoveMemoryPressure(bytes);
            }

            public override Span<T> GetSpan() => new Span<T>((void*)tensor.address(), count);

            public override MemoryHandle Pin(int elementIndex = 0) =>
                new MemoryHandle((byte*)tensor.address() + (long)elementIndex * Marshal.SizeOf<T>(), default(GCHandle), this);

            public override void Unpin() { }

            protected override void Dispose(bool disposing) { }
        }

        /// <summary>Returns a copy of the field's values.</summary>
        public T[] ToArray<T>(string field) where T : struct =>
            WithTensor(field, tensor => SpanOf<T>(field, tensor).ToArray());  // keeps the memory

        /// <summary>Sets a field to a copy of byte, ushort, int or float values,
        /// row-major.</summary>
        public unsafe Batch Set<T>(string field, ReadOnlySpan<T> values, params long[] shape) where T : struct
        {
            DType dtype = typeof(T) == typeof(byte) ? EchoTrain.DType.U8
                : typeof(T) == typeof(int) ? EchoTrain.DType.I32
                : typeof(T) == typeof(float) ? EchoTrain.DType.F32
                : typeof(T) == typeof(ushort) ? EchoTrain.DType.U16
                : throw new ArgumentException("fields hold byte, ushort, int or float, not " + typeof(T));
            if (shape == null) throw new ArgumentNullException(nameof(shape));
            long count = 1;
            try
            {
                foreach (long extent in shape) count = checked(count * extent);
            }
            catch (OverflowException)
            {
                throw new ArgumentException("field '" + field + "': an array of shape [" + string.Join(", ", shape) +
                    "] is larger than any memory");
            }
            if (count != values.Length)
                throw new ArgumentException("field '" + field + "': [" + string.Join(", ", shape) + "] needs " + count +
                    " values; there are " + values.Length);
            var extents = new Extents();
            foreach (long extent in shape) extents.Add(extent);
            byte none = 0;
            fixed (byte* address = &MemoryMarshal.GetReference(MemoryMarshal.AsBytes(values)))
            {
                var from = (ulong)(address != null ? address : &none);
                With(fields => fields.set(field, (int)dtype, extents, from));
            }
            return this;
        }

        public Batch Set<T>(string field, T[] values, params long[] shape) where T : struct =>
            Set(field, new ReadOnlySpan<T>(values ?? throw new ArgumentNullException(nameof(values))), shape);

        public void Remove(string field) => With(fields => fields.remove(field));

        /// <summary>Number of samples in the batch; 0 for a single sample of a pipeline without a
        /// batch stage.</summary>
        public int Samples => With(fields => fields.samples());

        /// <summary>Number of samples that were read from upstream for this batch.</summary>
        public int Fresh => With(fields => fields.fresh());

        /// <summary>Number of samples that an echo stage repeated.</summary>
        public int Echoed => With(fields => fields.echoed());

        /// <summary>Number of distinct samples in the batch.</summary>
        public int Unique => With(fields => fields.unique());

        /// <summary>Mean age of the samples: how many fresh samples echo stages have received since
        /// they received this one.</summary>
        public double MeanAge => With(fields => fields.mean_age());

        /// <summary>0 for a fresh sample, n for its n-th echo.</summary>
        public int Replica => With(fields => fields.replica());

        /// <summary>The number of the (first) sample in the source order of its epoch.</summary>
        public long Ordinal => With(fields => fields.ordinal());

        /// <summary>The epoch; only in a map function.</summary>
        public long Epoch => With(fields => fields.epoch());

        /// <summary>Releases the memory. A call of another thread that is in progress ends
        /// first.</summary>
        public void Dispose()
        {
            lock (gate) handle?.close();
        }

        /// <summary>Lists the fields with their types and shapes.</summary>
        public override string ToString()
        {
            lock (gate)
            {
                if (handle == null || handle.is_closed()) return "Batch(closed)";
                return "Batch(" + string.Join(", ", Fields.Select(field =>
                    field + ": " + DType(field) + " [" + string.Join(", ", Shape(field)) + "]")) + ")";
            }
        }

        private static Type TypeOf(DType dtype) =>
            dtype == EchoTrain.DType.U8 ? typeof(byte)
            : dtype == EchoTrain.DType.U16 ? typeof(ushort)
            : dtype == EchoTrain.DType.I32 ? typeof(int) : typeof(float);
    }
}
