# Unpacks the NuGet package as a client does, builds the C# sample against it and runs it.
# Variables: PACKAGE, MEMORY, MCS, MONO, ROOT, PAINTER, WORK.
file(REMOVE_RECURSE ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)
file(ARCHIVE_EXTRACT INPUT ${PACKAGE} DESTINATION ${WORK}/package)
foreach(file EchoTrain.nuspec lib/netstandard2.0/EchoTrain.dll lib/netstandard2.0/EchoTrain.xml
        runtimes/linux-x64/native/libechotrain_csharp.so runtimes/linux-x64/native/libechotrain.so.0.1)
  if(NOT EXISTS ${WORK}/package/${file})
    message(FATAL_ERROR "the package has no ${file}")
  endif()
endforeach()

# MEMORY stands for the NuGet package System.Memory, a dependency.
file(COPY ${MEMORY} ${WORK}/package/lib/netstandard2.0/EchoTrain.dll ${WORK}/package/runtimes DESTINATION ${WORK}/app)
run(${MCS} -nologo -r:${WORK}/app/EchoTrain.dll -out:${WORK}/app/Train.exe ${ROOT}/samples/csharp/Train.cs)
run(${PAINTER} ${WORK}/png 128 1)
run(${MONO} ${WORK}/app/Train.exe ${WORK}/png)
if(NOT last_output MATCHES "epoch 3: loss [0-9.]+")
  message(FATAL_ERROR "unexpected output of the sample: ${last_output}")
endif()

# Without the native library the error lists every place.
file(REMOVE_RECURSE ${WORK}/app/runtimes)
execute_process(COMMAND ${MONO} ${WORK}/app/Train.exe ${WORK}/png RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
if(code EQUAL 0 OR NOT out MATCHES "did not load" OR NOT out MATCHES "runtimes/linux-x64/native")
  message(FATAL_ERROR "a missing native library is not reported as it should be: ${out}")
endif()
