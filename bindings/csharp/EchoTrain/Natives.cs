using System;
using System.Collections.Generic;
using System.IO;
using System.Reflection;
using System.Runtime.InteropServices;

namespace EchoTrain
{
    /// <summary>Loads the native library, once. It looks in the folder in ECHOTRAIN_LIBRARY_PATH, and nowhere else if
    /// that is set; without it, beside the assembly, in its runtimes/RID/native (the layout of NuGet) and in that of
    /// the unpacked package, and where the system searches.</summary>
    internal static class Natives
    {
        private static readonly bool windows = RuntimeInformation.IsOSPlatform(OSPlatform.Windows);
        private static readonly string set = Environment.GetEnvironmentVariable("ECHOTRAIN_LIBRARY_PATH");
        private static readonly string binding = windows ? "echotrain_csharp.dll" : "libechotrain_csharp.so";

        private static class Posix
        {
            internal const int Now = 2, Global = 0x100;

            [DllImport("libdl.so.2", EntryPoint = "dlopen")]
            internal static extern IntPtr Open(string path, int flags);

            [DllImport("libdl.so.2", EntryPoint = "dlerror")]
            internal static extern IntPtr Error();
        }

        private static class Windows
        {
            internal const uint SearchBesideIt = 8;  // LOAD_WITH_ALTERED_SEARCH_PATH

            [DllImport("kernel32", EntryPoint = "LoadLibraryExW", CharSet = CharSet.Unicode, SetLastError = true)]
            internal static extern IntPtr Open(string path, IntPtr reserved, uint flags);
        }

        private static IntPtr opened;

        /// <summary>Why the library at the path did not load; null if it did.</summary>
        private static string Try(string path)
        {
            if (windows)
            {
                // A path without a folder is one that the system searches.
                opened = Windows.Open(path, IntPtr.Zero, Path.IsPathRooted(path) ? Windows.SearchBesideIt : 0);
                return opened != IntPtr.Zero ? null
                    : path + ": " + new System.ComponentModel.Win32Exception(Marshal.GetLastWin32Error()).Message;
            }
            Posix.Error();  // the first call looks for dlerror() itself, which forgets the error
            opened = Posix.Open(path, Posix.Now | Posix.Global);
            return opened != IntPtr.Zero ? null : Marshal.PtrToStringAnsi(Posix.Error()) ?? path + ": it did not load";
        }

        /// <summary>Makes .NET take the library that has been opened. It would load one beside the assembly, if there were
        /// one. Mono takes the one that is there.</summary>
        private static void UseOpened()
        {
            Assembly core = typeof(Marshal).GetTypeInfo().Assembly;
            Type kind = core.GetType("System.Runtime.InteropServices.DllImportResolver");
            MethodInfo use = core.GetType("System.Runtime.InteropServices.NativeLibrary")?.GetMethod("SetDllImportResolver");
            if (kind == null || use == null) return;  // .NET Core 3 and later have them, .NET Standard 2.0 does not
            MethodInfo resolve = typeof(Natives).GetMethod(nameof(Resolve), BindingFlags.NonPublic | BindingFlags.Static);
            use.Invoke(null, new object[] { typeof(Natives).GetTypeInfo().Assembly, Delegate.CreateDelegate(kind, resolve) });
        }

        private static IntPtr Resolve(string name, Assembly assembly, DllImportSearchPath? paths) =>
            name == "echotrain_csharp" ? opened : IntPtr.Zero;

        private static readonly Lazy<bool> loaded = new Lazy<bool>(() =>
        {
            var tried = new List<string>();
            foreach (string path in Candidates())
            {
                string error = Try(path);
                if (error == null)
                {
                    UseOpened();
                    Native.BindingsPINVOKE.RegisterErrors();
                    return true;
                }
                tried.Add(error);
            }
            string from = string.IsNullOrEmpty(set) ? "" : " from the folder that ECHOTRAIN_LIBRARY_PATH names";
            throw new DllNotFoundException($"EchoTrain's native library did not load{from}. Tried:\n  " +
                string.Join("\n  ", tried));
        });

        /// <summary>Makes sure that the library is loaded.</summary>
        internal static void Load() => _ = loaded.Value;

        private static IEnumerable<string> Candidates()
        {
            if (!string.IsNullOrEmpty(set))
            {
                yield return Path.Combine(Path.GetFullPath(set), binding);
                yield break;
            }
            string here = Path.GetDirectoryName(typeof(Natives).GetTypeInfo().Assembly.Location);
            if (!string.IsNullOrEmpty(here))
            {
                yield return Path.Combine(here, binding);
                string processor = RuntimeInformation.ProcessArchitecture == Architecture.Arm64 ? "arm64" : "x64";
                string natives = Path.Combine("runtimes", (windows ? "win-" : "linux-") + processor, "native", binding);
                yield return Path.Combine(here, natives);
                // An unpacked package, with the assembly in lib/netstandard2.0.
                yield return Path.GetFullPath(Path.Combine(here, "..", "..", natives));
            }
            yield return binding;
        }
    }
}
