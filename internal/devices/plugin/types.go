package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// announced is a socket of the plugin watcher's folder that has said what it is.
type announced struct {
	info *registerapi.PluginInfo
	// socket is where it was found, from names the registration.
	socket, from string
}

// pluginType is what is done with plugins of a type.
type pluginType struct {
	// take takes a plugin up, or says why not, which the plugin is told. It is called again after an error that may pass: one that is unavailable, already
	// exists or resource exhausted.
	take func(ctx context.Context, r *runner, p announced) error
	// leave lets go of a plugin whose socket has gone, whatever came of take.
	leave func(r *runner, p announced)
}

// types are the types of plugins. Another one is a row here.
var types = map[string]pluginType{
	registerapi.DevicePlugin: {takeDevices, func(r *runner, p announced) { r.dismissFrom(p.from, p.socket) }},
	registerapi.DRAPlugin: refused("%s is a driver of dynamic resource allocation (%s), which this node does not do yet: use the vendor's device plugin or its CDI specs: %w",
		registerapi.DRAPlugin),
	registerapi.CSIPlugin: refused("%s is a driver of volumes (%s), which this node does not have yet: %w", registerapi.CSIPlugin),
}

// typeOf is the type of a plugin, also of one that says something else.
func typeOf(info *registerapi.PluginInfo) pluginType {
	if t, known := types[info.GetType()]; known {
		return t
	}
	return refused("%s has the type %s, and this node knows %q only: %w", brief(info.GetType()), registerapi.DevicePlugin)
}

// refused is a type of which no plugin is taken up. The words are of its name, of more, and of the error's class.
func refused(words string, more ...any) pluginType {
	return pluginType{
		take: func(_ context.Context, _ *runner, p announced) error {
			args := append([]any{brief(p.info.GetName())}, more...)
			return fmt.Errorf(words, append(args, errdefs.ErrNotImplemented)...)
		},
		leave: func(*runner, announced) {},
	}
}

// takeDevices takes up a device plugin, which is served by its own socket or by another one.
func takeDevices(ctx context.Context, r *runner, p announced) error {
	if err := errors.Join(checkVersions(p.info.GetSupportedVersions()...), checkResource(p.info.GetName())); err != nil {
		return err
	}
	socket := p.info.GetEndpoint()
	if socket == "" {
		socket = p.socket // one socket for both
	}
	if !filepath.IsAbs(socket) || len(socket) > maxSocketPath {
		return fmt.Errorf("the endpoint %s is not the absolute path of a socket (at most %d bytes): %w", brief(socket), maxSocketPath, errdefs.ErrInvalidArgument)
	}
	return r.enroll(ctx, offer{resource: p.info.GetName(), socket: socket, from: p.from})
}
