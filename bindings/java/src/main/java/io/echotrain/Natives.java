package io.echotrain;

import io.echotrain.internal.Bindings;
import java.io.IOException;
import java.io.InputStream;
import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;

/**
 * Loads the native library, once, and frees its objects.
 *
 * <p>It looks in this order: the folder in the system property {@code echotrain.library.path};
 * {@code java.library.path}; the natives jar, unpacked into {@code
 * ~/.cache/echotrain/java/DIGEST} ({@code echotrain.cache.dir} names another folder).
 */
final class Natives {
  private static final String BINDING = "libechotrain_java.so";
  private static final String LIBRARY = "libechotrain.so.0.1";
  private static final Cleaner CLEANER = Cleaner.create();

  static {
    List<String> tried = new ArrayList<>();
    if (!fromProperty(tried) && !fromLibraryPath(tried) && !fromJar(tried)) {
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
    String folder = System.getProperty("echotrain.library.path");
    if (folder == null) {
      tried.add("system property echotrain.library.path: not set");
      return false;
    }
    return load(Path.of(folder).toAbsolutePath().resolve(BINDING), tried);
  }

  private static boolean fromLibraryPath(List<String> tried) {
    try {
      System.loadLibrary("echotrain_java");
      return true;
    } catch (UnsatisfiedLinkError error) {
      tried.add("java.library.path: " + error.getMessage());
      return false;
    }
  }

  private static boolean fromJar(List<String> tried) {
    String place = "natives/" + System.getProperty("os.name").toLowerCase() + "-" + architecture() + "/";
    // Of the loader: a class finds resources of its own module only, and the natives are another.
    ClassLoader loader = Natives.class.getClassLoader();
    try (InputStream binding = loader.getResourceAsStream(place + BINDING);
        InputStream library = loader.getResourceAsStream(place + LIBRARY)) {
      if (binding == null || library == null) {
        tried.add("class and module path: no natives jar with " + place + BINDING + others(loader));
        return false;
      }
      byte[] bindingBytes = binding.readAllBytes();
      byte[] libraryBytes = library.readAllBytes();
      Path folder = cache(bindingBytes, libraryBytes);
      unpack(folder.resolve(LIBRARY), libraryBytes);
      unpack(folder.resolve(BINDING), bindingBytes);
      return load(folder.resolve(BINDING), tried);
    } catch (IOException | NoSuchAlgorithmException error) {
      tried.add("natives jar: " + error + " (-Dechotrain.cache.dir=FOLDER unpacks it elsewhere)");
      return false;
    }
  }

  // Those of other processors, which are there instead.
  private static String others(ClassLoader loader) {
    StringBuilder found = new StringBuilder();
    for (String other : new String[] {"linux-x86_64", "linux-aarch64"})
      if (loader.getResource("natives/" + other + "/" + BINDING) != null) found.append(", only for ").append(other);
    return found.toString();
  }

  private static String architecture() {
    String name = System.getProperty("os.arch");
    return name.equals("amd64") ? "x86_64" : name;
  }

  private static Path cache(byte[]... contents) throws IOException, NoSuchAlgorithmException {
    MessageDigest digest = MessageDigest.getInstance("SHA-256");
    for (byte[] content : contents) digest.update(content);
    StringBuilder name = new StringBuilder();
    for (byte b : digest.digest()) name.append(String.format("%02x", b));
    String set = System.getProperty("echotrain.cache.dir");
    Path base = set != null ? Path.of(set)
        : Path.of(System.getProperty("user.home"), ".cache", "echotrain", "java");
    return Files.createDirectories(base.resolve(name.substring(0, 16)));
  }

  // Atomic, also if two processes unpack at once. A file of another size is damaged.
  private static void unpack(Path target, byte[] content) throws IOException {
    if (Files.exists(target) && Files.size(target) == content.length) return;
    Path part = Files.createTempFile(target.getParent(), target.getFileName().toString(), ".part");
    try {
      try (FileChannel out = FileChannel.open(part, StandardOpenOption.WRITE)) {
        for (ByteBuffer bytes = ByteBuffer.wrap(content); bytes.hasRemaining(); ) out.write(bytes);
        out.force(true);
      }
      Files.move(part, target, StandardCopyOption.ATOMIC_MOVE);
    } catch (AtomicMoveNotSupportedException error) {
      Files.move(part, target, StandardCopyOption.REPLACE_EXISTING);
    } finally {
      Files.deleteIfExists(part);
    }
  }

  private static boolean load(Path path, List<String> tried) {
    try {
      System.load(path.toString());
      return true;
    } catch (UnsatisfiedLinkError error) {
      tried.add(path + ": " + error.getMessage());
      return false;
    }
  }
}
