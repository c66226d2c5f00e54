# Writes HEADER with the commit that SOURCE is built from, as what follows a version: "+3993a8012345", "+3993a8012345.changed" where files
# differ from it, or nothing outside of git. (Git would shorten it as much as the clone allows: a shallow one more than a full one.) Run at
# each build; the header is touched when the commit has changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --dirty=.changed --exclude=* OUTPUT_VARIABLE commit ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-prefix OUTPUT_VARIABLE prefix ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(failed OR NOT "${prefix}" STREQUAL "")  # an unpacked release within somebody else's checkout has none
  set(text "")
else()
  set(text "+${commit}")
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define ECHOTRAIN_COMMIT \"${text}\"\n")
