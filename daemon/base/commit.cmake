# Writes OUT, the commit of SOURCE as a macro, if it is another than before. Its time stands before
# its hash, so that versions sort. Packages take no "-".
set(ENV{TZ} UTC)
execute_process(COMMAND git log -1 --date=format-local:%Y%m%d.%H%M%S --format=git%cd
                WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE time ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND git describe --always --dirty=.dirty --exclude=*
                WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE hash ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
set(commit unknown)
if(time AND hash)
  set(commit ${time}.${hash})
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define HEDDLE_COMMIT \"${commit}\"\n")
