package io.echotrain;

import io.echotrain.internal.Bindings;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Loads the native library, once, and frees its objects.
 *
 * <p>It looks in the folder that the system property {@code echotrain.library.path} names, and nowhere else if that is set. Without it,
 * in {@code java.library.path} and then in the natives jar, which it unpacks into {@code java/DIGEST} of the folder for caches ({@code
 * $XDG_CACHE_HOME/echotrain} or {@code ~/.cache/echotrain}; on Windows {@code %LOCALAPPDATA%\echotrain}). The system property {@code
 * echotrain.cache.dir} names another folder than {@code java} there.
 */
final class Natives {
  private static final boolean WINDOWS = System.getProperty("os.name").startsWith("Windows");
  private static final String BINDING = WINDOWS ? "echotrain_java.dll" : "libechotrain_java.so";
  private static final String LIBRARY = WINDOWS ? "libechotrain-0.1.dll" : "libechotrain.so.0.1";
  // What there may be in a folder or a jar, each after those that it needs.
  private static final List<String> NAMES = WINDOWS ? List.of("libtbbmalloc.dll", "libtbb12.dll", LIBRARY, BINDING) : List.of(LIBRARY, BINDING);
  private static final Cleaner CLEANER = Cleaner.create();

  static {
    List<String> tried = new ArrayList<>();
    boolean loaded = System.getProperty("echotrain.library.path") != null ? fromProperty(tried) : fromLibraryPath(tried) || fromJar(tried);
    if (!loaded) {
      throw new UnsatisfiedLinkError("EchoTrain's native library did not load. Tried:\n  "
          + String.join("\n  ", tried));
    }
    // Which a jar says. Classes and natives of two versions would fail later, at some call.
    String version = Natives.class.getPackage().getImplementationVersion();
    if (version != null && !version.equals(Bindings.version())) {
      throw new UnsatisfiedLinkError("the classes are of EchoTrain " + version + ", and the native library is of "
          + Bindings.version() + "; take both of the same version");
    }
    Log.start();
  }

  private Natives() {}

  /** Makes sure that the library is loaded. */
  static void load() {}

  /**
   * Runs {@code action} when {@code owner} has become unreachable; the action must not refer to it.
   */
  static void free(Object owner, Runnable action) { CLEANER.register(owner, action); }

  /**
   * Returns a text that the library passes on unchanged: without lone surrogates, which UTF-8 does
   * not have, and without NUL characters, at which C would cut it.
   */
  static String passable(String text) {
    return new String(text.replace('\0', '?').getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
  }

  private static boolean fromProperty(List<String> tried) {
    List<String> errors = new ArrayList<>();
    boolean loaded = load(Path.of(System.getProperty("echotrain.library.path")).toAbsolutePath(), errors);
    for (String error : errors) tried.add("system property echotrain.library.path: " + error);
    return loaded;
  }

  private static boolean fromLibraryPath(List<String> tried) {
    if (WINDOWS) {  // whose loader would not look beside the binding
      for (String folder : System.getProperty("java.library.path", "").split(File.pathSeparator))
        if (Files.exists(Path.of(folder, BINDING))) return load(Path.of(folder).toAbsolutePath(), tried);
      tried.add("java.library.path: no " + BINDING);
      return false;
    }
    try {
      System.loadLibrary("echotrain_java");
      return true;
    } catch (UnsatisfiedLinkError error) {
      tried.add("java.library.path: " + error.getMessage());
      return false;
    }
  }

  private static boolean fromJar(List<String> tried) {
    String system = WINDOWS ? "windows" : System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String place = "natives/" + system + "-" + architecture() + "/";
    // Of the loader: a class finds resources of its own module only, and the natives are another.
    ClassLoader loader = Natives.class.getClassLoader();
    try {
      Map<String, byte[]> contents = new LinkedHashMap<>();
      for (String name : NAMES) {
        try (InputStream resource = loader.getResourceAsStream(place + name)) {
          if (resource != null) contents.put(name, resource.readAllBytes());
        }
      }
      if (!contents.containsKey(BINDING) || !contents.containsKey(LIBRARY)) {
        tried.add("class and module path: no natives jar with " + place + BINDING + others(loader));
        return false;
      }
      Path folder = cache(contents.values());
      for (Map.Entry<String, byte[]> each : contents.entrySet()) unpack(folder.resolve(each.getKey()), each.getValue());
      if (load(folder, tried)) return true;
      tried.add("-Dechotrain.cache.dir=FOLDER unpacks the natives jar elsewhere"
          + (WINDOWS ? "; use one whose path has characters of this system's code page only" : ""));
      return false;
    } catch (IOException | NoSuchAlgorithmException error) {
      tried.add("natives jar: " + error + " (-Dechotrain.cache.dir=FOLDER unpacks it elsewhere)");
      return false;
    }
  }

  // Those of other systems and processors, which are there instead.
  private static String others(ClassLoader loader) {
    StringBuilder found = new StringBuilder();
    for (String other : new String[] {"linux-x86_64/libechotrain_java.so", "linux-aarch64/libechotrain_java.so", "windows-x86_64/echotrain_java.dll"})
      if (loader.getResource("natives/" + other) != null) found.append(", only natives/").append(other);
    return found.toString();
  }

  private static String architecture() {
    String name = System.getProperty("os.arch");
    return name.equals("amd64") ? "x86_64" : name;
  }

  private static Path cache(Iterable<byte[]> contents) throws IOException, NoSuchAlgorithmException {
    MessageDigest digest = MessageDigest.getInstance("SHA-256");
    for (byte[] content : contents) digest.update(content);
    StringBuilder name = new StringBuilder();
    for (byte b : digest.digest()) name.append(String.format("%02x", b));
    String set = System.getProperty("echotrain.cache.dir");
    Path base = set != null ? Path.of(set) : caches().resolve(Path.of("echotrain", "java"));
    return Files.createDirectories(base.resolve(name.substring(0, 16)));
  }

  private static Path caches() {
    String set = System.getenv(WINDOWS ? "LOCALAPPDATA" : "XDG_CACHE_HOME");
    return set != null && !set.isEmpty() ? Path.of(set) : Path.of(System.getProperty("user.home"), ".cache");
  }

  // A file of another size is damaged.
  private static boolean isThere(Path target, byte[] content) throws IOException {
    return Files.exists(target) && Files.size(target) == content.length;
  }

  // Atomic, also if two processes unpack at once.
  private static void unpack(Path target, byte[] content) throws IOException {
    if (isThere(target, content)) return;
    Path part = Files.createTempFile(target.getParent(), target.getFileName().toString(), ".part");
    try {
      try (FileChannel out = FileChannel.open(part, StandardOpenOption.WRITE)) {
        for (ByteBuffer bytes = ByteBuffer.wrap(content); bytes.hasRemaining(); ) out.write(bytes);
        out.force(true);
      }
      Files.move(part, target, StandardCopyOption.ATOMIC_MOVE);
    } catch (AtomicMoveNotSupportedException error) {
      Files.move(part, target, StandardCopyOption.REPLACE_EXISTING);
    } catch (AccessDeniedException error) {  // on Windows, if another process has loaded it meanwhile
      if (!isThere(target, content)) throw error;
    } finally {
      Files.deleteIfExists(part);
    }
  }

  private static boolean load(Path folder, List<String> tried) {
    // Windows does not look for what a DLL needs beside it.
    for (String name : WINDOWS ? NAMES : List.of(BINDING)) {
      Path path = folder.resolve(name);
      if (!Files.exists(path) && !name.equals(BINDING)) continue;
      try {
        System.load(path.toString());
      } catch (UnsatisfiedLinkError error) {
        tried.add(path + ": " + error.getMessage());
        return false;
      }
    }
    return true;
  }
}
