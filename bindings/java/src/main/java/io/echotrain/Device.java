package io.echotrain;

import io.echotrain.internal.DeviceInfo;
import io.echotrain.internal.DeviceOptions;
import io.echotrain.internal.Devices;
import io.echotrain.internal.RuntimeHandle;
import io.echotrain.internal.Bindings;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;

/** An open Vulkan device with its kernels; trainers share it. */
public final class Device implements AutoCloseable {
  /** The kinds of devices. */
  public enum Kind { DISCRETE, INTEGRATED, VIRTUAL, CPU, OTHER }

  /** Families of kernels; see {@code ETR_KERNELS_*} in the C header. */
  public enum Kernels { AUTOMATIC, CPU, TILED, MATRIX }

  /** How a device is opened. */
  public static final class Options {
    private long memoryLimitBytes;
    private String tuning;
    private double hangSeconds;
    private Kernels kernels = Kernels.AUTOMATIC;
    private String cacheDir;
    private boolean validation;
    private boolean trustDriver;

    /** At most so much of the device's memory is used; 0: no limit. */
    public Options memoryLimitBytes(long bytes) {
      memoryLimitBytes = bytes;
      return this;
    }

    /** A file that {@link Device#tune} wrote; null: the user's file, if it exists; empty: none. */
    public Options tuning(String path) {
      tuning = path;
      return this;
    }

    /**
     * A device that does not finish its work within so many seconds of waiting is treated as lost;
     * 0: 300 on GPUs, no limit on CPUs.
     */
    public Options hangSeconds(double seconds) {
      hangSeconds = seconds;
      return this;
    }

    /** The family of kernels. */
    public Options kernels(Kernels family) {
      kernels = Objects.requireNonNull(family, "kernels");
      return this;
    }

    /** The folder of the pipeline cache; null: the user's; empty: none. */
    public Options cacheDir(String folder) {
      cacheDir = folder;
      return this;
    }

    /** Whether to load Vulkan's validation layer, whose messages are logged. */
    public Options validation(boolean load) {
      validation = load;
      return this;
    }

    /** Whether to use kernels without comparing their first results with the host's. */
    public Options trustDriver(boolean trust) {
      trustDriver = trust;
      return this;
    }
  }

  final RuntimeHandle handle;

  /** Opens a device. {@code selector} is an index or part of a name; empty: the first device. */
  public Device(String selector) { this(selector, 0); }

  /** Opens a device. At most {@code memoryLimitBytes} of its memory are used; 0: no limit. */
  public Device(String selector, long memoryLimitBytes) { this(selector, memoryLimitBytes, ""); }

  /**
   * Opens a device. {@code tuning} is a file that {@link #tune} wrote; empty: the user's file, if
   * it exists.
   */
  public Device(String selector, long memoryLimitBytes, String tuning) {
    this(selector, memoryLimitBytes, tuning, 0);
  }

  /**
   * Opens a device. If it does not finish its work within {@code hangSeconds} of waiting, it is
   * treated as lost; 0: 300 seconds on GPUs, no limit on CPUs.
   */
  public Device(String selector, long memoryLimitBytes, String tuning, double hangSeconds) {
    this(selector, new Options().memoryLimitBytes(memoryLimitBytes).tuning(tuning == null || tuning.isEmpty() ? null : tuning)
        .hangSeconds(hangSeconds));
  }

  /** Opens a device with options. */
  public Device(String selector, Options options) {
    Natives.load();
    Objects.requireNonNull(options, "options");
    DeviceOptions given = new DeviceOptions();
    try {
      given.setDevice(selector);
      given.setMemory_limit_bytes(options.memoryLimitBytes);
      given.setHang_seconds(options.hangSeconds);
      given.setKernels(options.kernels.ordinal());
      given.setValidation(options.validation);
      given.setTrust_driver(options.trustDriver);
      given.setUsers_tuning(options.tuning == null);
      given.setUsers_cache(options.cacheDir == null);
      if (options.tuning != null) given.setTuning(options.tuning);
      if (options.cacheDir != null) given.setCache_dir(options.cacheDir);
      handle = new RuntimeHandle(given);
    } finally {
      given.delete();
    }
    Natives.free(handle, handle.release());
  }

  /**
   * Finds, by trying them, the fastest kernels on this device for the models whose trainers have
   * had their first batch. Writes them to the file {@code path} (empty: the user's file, for all
   * later runs). Trainers created later use them.
   */
  public void tune(String path) { tune(path, (ProgressListener) null); }

  /**
   * Does the same as {@link #tune(String, ProgressListener)}.
   * @deprecated Pass a {@link ProgressListener}.
   */
  @Deprecated
  public void tune(String path, Trainer.EvaluationListener listener) { tune(path, (ProgressListener) listener); }

  /**
   * Does the same as {@link #tune(String)}. {@code listener} is told how many products and
   * convolutions have been measured, their number, and the latest one with the kernel that was
   * chosen. If it returns false, tuning ends there, and what was measured is written.
   */
  public void tune(String path, ProgressListener listener) {
    try (Reporting call = new Reporting(listener)) {
      call.run(progress -> {
        handle.tune(path, progress);
        return null;
      });
      Reporting.throwAgain(call.failure());
    }
  }

  public Device() { this(""); }

  /** Returns the device's place in {@link #list}: discrete GPUs come first, CPU devices last. */
  public int index() { return info(DeviceInfo::getIndex); }

  public Kind kind() { return Kind.values()[info(DeviceInfo::getKind)]; }

  /** Returns the size in bytes of the largest heap of device-local memory. */
  public long memoryBytes() { return info(DeviceInfo::getMemory_bytes); }

  public String name() { return info(DeviceInfo::getName); }

  public String driver() { return info(DeviceInfo::getDriver); }

  private <T> T info(Function<DeviceInfo, T> read) {
    DeviceInfo info = handle.device();
    try {
      return read.apply(info);
    } finally {
      info.delete();
    }
  }

  /** Releases the device when its trainers and runs, which remain usable, are closed, too. */
  @Override
  public void close() { handle.close(); }

  /** Returns the names of the Vulkan devices, discrete GPUs first. */
  public static List<String> list() {
    Natives.load();
    List<String> names = new ArrayList<>();
    Devices devices = Bindings.devices();
    try {
      for (DeviceInfo info : devices) names.add(info.getName());
      return names;
    } finally {
      devices.delete();
    }
  }

  /**
   * Speeds up training on a CPU device: asks for 512-bit vectors if the processor has them and the
   * driver gains by them (Mesa 25 and later). Call it before the first device is opened.
   */
  public static void preferWideCpuVectors() {
    Natives.load();
    Bindings.prefer_wide_cpu_vectors();
  }
}
