// Package controllers names what Cilium's operator takes from this module, which the Go proxy does not serve.
package controllers

// DerivedServiceAnnotation names the Service that was made for a ServiceImport (Multi-Cluster Services API).
const DerivedServiceAnnotation = "multicluster.kubernetes.io/derived-service"
