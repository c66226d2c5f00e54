// For Mono, which has these types in mscorlib: System.Memory.dll, which says so. Elsewhere .NET or NuGet
// brings the real one.
using System.Reflection;
using System.Runtime.CompilerServices;

[assembly: AssemblyVersion("4.0.1.0")]
[assembly: TypeForwardedTo(typeof(System.Span<>))]
[assembly: TypeForwardedTo(typeof(System.ReadOnlySpan<>))]
[assembly: TypeForwardedTo(typeof(System.MemoryExtensions))]
[assembly: TypeForwardedTo(typeof(System.Runtime.InteropServices.MemoryMarshal))]
