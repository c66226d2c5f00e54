using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Runtime.InteropServices;

namespace EchoTrain
{
    /// <summary>Loads the native library, once. It looks in the folder in ECHOTRAIN_LIBRARY_PATH,
    /// beside the assembly, in its runtimes/RID/native (the layout of NuGet) and in that of the
    /// unpacked package, and where the system searches.</summary>
    internal static class Natives
    {
        private const string Binding = "libechotrain_csharp.so";
        private const int Now = 2, Global = 0x100;

        [DllImport("libdl.so.2", EntryPoint = "dlopen")]
        private static extern IntPtr Open(string path, int flags);

        [DllImport("libdl.so.2", EntryPoint = "dlerror")]
        private static extern IntPtr Error();

        private static readonly Lazy<bool> loaded = new Lazy<bool>(() =>
        {
            var tried = new List<string>();
            foreach (string path in Candidates())
            {
                if (Open(path, Now | Global) != IntPtr.Zero)
                {
                    Native.BindingsPINVOKE.RegisterErrors();
                    return true;
                }
                tried.Add(Marshal.PtrToStringAnsi(Error()));
            }
            throw new DllNotFoundException("EchoTrain's native library did not load. Tried:\n  " +
                string.Join("\n  ", tried));
        });

        /// <summary>Makes sure that the library is loaded.</summary>
        internal static void Load() => _ = loaded.Value;

        private static IEnumerable<string> Candidates()
        {
            string set = Environment.GetEnvironmentVariable("ECHOTRAIN_LIBRARY_PATH");
            if (!string.IsNullOrEmpty(set)) yield return Path.Combine(set, Binding);
            string here = Path.GetDirectoryName(typeof(Natives).GetTypeInfo().Assembly.Location);
            if (!string.IsNullOrEmpty(here))
            {
                yield return Path.Combine(here, Binding);
                string processor = RuntimeInformation.ProcessArchitecture == Architecture.Arm64 ? "linux-arm64" : "linux-x64";
                yield return Path.Combine(here, "runtimes", processor, "native", Binding);
                // An unpacked package, with the assembly in lib/netstandard2.0.
                yield return Path.GetFullPath(Path.Combine(here, "..", "..", "runtimes", processor, "native", Binding));
            }
            yield return Binding;
        }
    }
}
