// Package plugins holds the node against unmodified device plugins of others, which run as processes of the host: each comes, is killed, comes
// back, sees the node killed, and goes, while pods use what it gives. What they taught is in docs/DEVICES.md. test/kubelet holds an upstream
// kubelet against the same plugins.
//
// $MONOPOD_PLUGIN_SAMPLE is Kubernetes' own plugin, which `make test-plugins` builds. The others are tried where the variable of README.md
// names one, and skipped otherwise. The tests are built with the tag "plugins" only, so that `go test ./...` needs none of them.
package plugins
