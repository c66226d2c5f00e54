using System;
using Mono.Cecil;

/// Makes an assembly of Mono's compiler loadable everywhere: Mono has Span and related types in
/// mscorlib, .NET has them in System.Memory (part of .NET, and a NuGet package for .NET Framework).
///
///   mono Retarget.exe IN.dll OUT.dll
static class Retarget
{
    static int Main(string[] arguments)
    {
        using (AssemblyDefinition assembly = AssemblyDefinition.ReadAssembly(arguments[0]))
        {
            ModuleDefinition module = assembly.MainModule;
            var memory = new AssemblyNameReference("System.Memory", new Version(4, 0, 1, 0))
            {
                PublicKeyToken = new byte[] { 0xcc, 0x7b, 0x13, 0xff, 0xcd, 0x2d, 0xdd, 0x51 }
            };
            int moved = 0;
            foreach (TypeReference type in module.GetTypeReferences())
                switch (type.FullName)
                {
                    case "System.Span`1":
                    case "System.ReadOnlySpan`1":
                    case "System.Memory`1":
                    case "System.ReadOnlyMemory`1":
                    case "System.Buffers.IPinnable":
                    case "System.Buffers.MemoryHandle":
                    case "System.Buffers.MemoryManager`1":
                    case "System.MemoryExtensions":
                    case "System.Runtime.InteropServices.MemoryMarshal":
                        type.Scope = memory;
                        ++moved;
                        break;
                }
            if (moved > 0) module.AssemblyReferences.Add(memory);
            assembly.Write(arguments[1]);
        }
        return 0;
    }
}
