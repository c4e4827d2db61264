// Package deploy is what watches a pipeline: a Grafana dashboard and rules for
// Prometheus. README.md says how to use them; the package has nothing but their
// tests.
package deploy
