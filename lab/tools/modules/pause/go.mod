module gpu-clusters.dev/lab/tools/pause

go 1.26.0
