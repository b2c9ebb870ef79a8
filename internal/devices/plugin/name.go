package plugin

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/util/validation"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/host/unixsocket"
)

const (
	kubeletSocket = "kubelet.sock"
	// hiddenPrefix begins the names that our own socket has before it is served.
	hiddenPrefix = unixsocket.HiddenPrefix
	// maxSocketPath is the size of sockaddr_un's sun_path, without its last zero (unix(7)).
	maxSocketPath = 107
)

// checkVersions says whether a plugin speaks a version that is spoken here.
func checkVersions(versions ...string) error {
	for _, v := range versions {
		if slices.Contains(v1beta1.SupportedVersions[:], v) {
			return nil
		}
	}
	return fmt.Errorf("the plugin speaks version %q of the device plugin API, and this node %q: use a release of the plugin that was built for it: %w",
		versions, v1beta1.SupportedVersions, errdefs.ErrInvalidArgument)
}

// checkResource says whether a name is an extended resource's, as Kubernetes defines it: a qualified name with a domain that is not
// kubernetes.io's, which has room for the prefix under which quotas count it.
func checkResource(name string) error {
	var why string
	switch domain, _, ok := strings.Cut(name, "/"); {
	case !ok:
		// The API's comment still says "a DNS label". Pods cannot ask for one: names without a domain are Kubernetes' own.
		why = "it has no domain"
	case strings.Contains(name, "kubernetes.io/"):
		why = "the domain kubernetes.io is reserved"
	case strings.HasPrefix(domain, "requests."):
		why = `the prefix "requests." is that of quotas`
	default:
		why = strings.Join(validation.IsQualifiedName("requests."+name), "; ")
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("the resource name %q is no extended resource: %s; a plugin has to register a name like \"example.com/gpu\": %w", name, why, errdefs.ErrInvalidArgument)
}

// checkEndpoint says whether a plugin's endpoint is the name of a socket in the folder.
func checkEndpoint(dir, endpoint string) error {
	var why string
	switch {
	case endpoint == "":
		why = "it is empty"
	case strings.ContainsAny(endpoint, "/\x00") || endpoint == "." || endpoint == "..":
		why = "it is not a bare file name"
	case endpoint == kubeletSocket:
		why = "that is the name of this node's own socket"
	case strings.HasPrefix(endpoint, hiddenPrefix):
		why = fmt.Sprintf("names that begin with %q are this node's own", hiddenPrefix)
	case len(filepath.Join(dir, endpoint)) > maxSocketPath:
		why = fmt.Sprintf("with the folder %s its path has %d bytes, and a socket's path at most %d", dir, len(filepath.Join(dir, endpoint)), maxSocketPath)
	default:
		return nil
	}
	return fmt.Errorf("the endpoint %q cannot be used: %s; a plugin has to register the name of its socket in %s, like \"gpu.sock\": %w", endpoint, why, dir, errdefs.ErrInvalidArgument)
}
