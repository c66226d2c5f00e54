// For Mono, which has these types in mscorlib: System.Memory.dll, which says so. Elsewhere .NET or NuGet
// brings the real one.
using System.Reflection;
using System.Runtime.CompilerServices;

[assembly: AssemblyVersion("4.0.1.0")]
[assembly: TypeForwardedTo(typeof(System.Span<>))]
[assembly: TypeForwardedTo(typeof(System.ReadOnlySpan<>))]
[assembly: TypeForwardedTo(typeof(System.Memory<>))]
[assembly: TypeForwardedTo(typeof(System.ReadOnlyMemory<>))]
[assembly: TypeForwardedTo(typeof(System.Buffers.IPinnable))]
[assembly: TypeForwardedTo(typeof(System.Buffers.MemoryHandle))]
[assembly: TypeForwardedTo(typeof(System.Buffers.MemoryManager<>))]
[assembly: TypeForwardedTo(typeof(System.MemoryExtensions))]
[assembly: TypeForwardedTo(typeof(System.Runtime.InteropServices.MemoryMarshal))]
