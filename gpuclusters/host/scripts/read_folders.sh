#!/bin/sh
# Print the files of some folders, top level only: per file a line "path", then its content in
# base64 and an empty line. Absent folders have no files.
# Usage: sh -s -- "SUFFIX ..." FOLDER...
set -eu
LC_ALL=C
export LC_ALL
suffixes=$1
shift
for folder; do
    for suffix in $suffixes; do
        for file in "$folder"/*"$suffix"; do
            if [ -f "$file" ]; then
                printf '%s\n' "$file"
                base64 -- "$file"
                echo
            fi
        done
    done
done
