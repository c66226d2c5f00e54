# Adds a stage to the schema (schema_shim.c, a library in front of ours) and looks for it, with its options and documentation, in
# every language. Variables: SHIM, PYTHON, GENERATE, BINDINGS, JAVAC, MCS, JAVA_SOURCES,
# CSHARP_SOURCES, WORK.
file(REMOVE_RECURSE ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)

function(expect file)
  file(READ ${file} text)
  foreach(words ${ARGN})
    string(FIND "${text}" "${words}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "${file} does not say '${words}':\n${text}")
    endif()
  endforeach()
endfunction()

run(${PYTHON} ${GENERATE} --library ${SHIM}
    --python ${WORK}/python --java ${WORK}/java/io/echotrain --csharp ${WORK}/csharp)
expect(${WORK}/python/stages.pyi "def probe(depth: int, ways: Numbers = [0.5], tone: Literal" "A stage of the test.")
expect(${WORK}/java/io/echotrain/Stages.java "public static Probe probe(long depth)" "How it sounds (one of low, high; default")
expect(${WORK}/csharp/Stages.cs "public static Spec Probe(long @depth, double[] @ways = null, string @tone = null)")

# What was generated compiles beside the hand-written sources.
file(MAKE_DIRECTORY ${WORK}/classes)
run(${JAVAC} --release 11 -d ${WORK}/classes ${JAVA_SOURCES}/Spec.java ${JAVA_SOURCES}/Json.java
    ${WORK}/java/io/echotrain/Stages.java)
run(${MCS} -nologo -langversion:7.2 -target:library -out:${WORK}/stages.dll ${CSHARP_SOURCES}/Spec.cs
    ${WORK}/csharp/Stages.cs)

# Python makes its functions when it is imported.
file(WRITE ${WORK}/probe.py [=[
import inspect
import echotrain as et
spec = et.stages.probe(3, tone="high")
assert (spec.name, spec.options) == ("probe", {"depth": 3, "tone": "high"}), spec
assert list(inspect.signature(et.stages.probe).parameters) == ["depth", "ways", "tone"]
assert "how it sounds" in et.stages.probe.__doc__
]=])
run(${CMAKE_COMMAND} -E env LD_PRELOAD=${SHIM} PYTHONPATH=${BINDINGS}/python ${PYTHON} ${WORK}/probe.py)
