// Reads CDI specs as a container runtime does, with the CDI project's own library, and says as JSON
// which devices it found, what it complained about, and what one container would get.
//
//	cdi_reader FOLDER [QUALIFIED-NAME...]
package main

import (
	"encoding/json"
	"fmt"
	"os"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

type answer struct {
	Devices []string            `json:"devices"`
	Errors  map[string][]string `json:"errors"`
	Nodes   []string            `json:"nodes"`
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cdi_reader FOLDER [QUALIFIED-NAME...]")
		os.Exit(64)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(os.Args[1]), cdi.WithAutoRefresh(false))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	said := answer{Devices: cache.ListDevices(), Errors: map[string][]string{}, Nodes: []string{}}
	for path, errors := range cache.GetErrors() {
		for _, err := range errors {
			said.Errors[path] = append(said.Errors[path], err.Error())
		}
	}
	if names := os.Args[2:]; len(names) > 0 {
		spec := &oci.Spec{}
		if _, err := cache.InjectDevices(spec, names...); err != nil {
			said.Errors["inject"] = append(said.Errors["inject"], err.Error())
		} else if spec.Linux != nil {
			for _, device := range spec.Linux.Devices {
				said.Nodes = append(said.Nodes, device.Path)
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		os.Exit(1)
	}
}
