# Writes OUT, the commit of SOURCE as a macro, if it is another than before.
execute_process(COMMAND git describe --always --dirty --exclude=*
                WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define HEDDLE_COMMIT \"${commit}\"\n")
