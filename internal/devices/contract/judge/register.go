package judge

import (
	"fmt"
	"strings"
	"time"
)

// Options are DevicePluginOptions.
type Options struct{ PreStart, Preferred bool }

// String is what the options say.
func (o Options) String() string {
	var has []string
	if o.PreStart {
		has = append(has, "pre_start_required")
	}
	if o.Preferred {
		has = append(has, "get_preferred_allocation_available")
	}
	if len(has) == 0 {
		return "no options"
	}
	return strings.Join(has, ", ")
}

// Start is what came of the plugin's start.
type Start struct {
	// Waited is how long nothing had registered.
	Waited time.Duration
	// Ended is how the program ended; empty: it runs.
	Ended string
	// Sockets are what there is in the folder without having registered.
	Sockets []string
	// Registered are the resources, in order.
	Registered []string
	// Watched says that the plugin was found in the plugin watcher's folder.
	Watched bool
}

// Started judges the start.
func Started(s Start) Check {
	const name = "register/call"
	how := "registers"
	if s.Watched {
		how = "is found by the plugin watcher, in plugins_registry,"
	}
	switch {
	case len(s.Registered) > 0:
		return check(OK, name, "", "%s %s after its start: %s", how, Time(s.Waited), some(s.Registered))
	case s.Ended != "":
		return check(Fail, name, "", "the plugin has ended without registering, %s after its start: %s", Time(s.Waited), s.Ended)
	case len(s.Sockets) > 0:
		return check(Fail, name, "", "nothing has registered within %s, though the plugin serves %s", Time(s.Waited), some(s.Sockets))
	}
	return check(Fail, name, "", "nothing has registered within %s, and the plugin has made no socket", Time(s.Waited))
}

// Registration is a Register, or what a plugin in the plugin watcher's folder has said.
type Registration struct {
	Resource, Version, Endpoint string
	Options                     Options
	// VersionError, ResourceError and EndpointError are why a node would refuse it.
	VersionError, ResourceError, EndpointError string
	// SocketError is why the socket took no connections in the time Waited; empty: it did.
	SocketError string
	Waited      time.Duration
	// Watched says that it was in the plugin watcher's folder, where options are not told.
	Watched bool
}

// Registered judges a registration.
func Registered(r Registration) []Check {
	all := []Check{
		orError("register/version", r.Resource, r.VersionError, "%s", brief(r.Version)),
		orError("register/resource", r.Resource, r.ResourceError, "%s", brief(r.Resource)),
	}
	const name = "register/endpoint"
	switch {
	case r.EndpointError != "":
		all = append(all, check(Fail, name, r.Resource, "%s", r.EndpointError))
	case r.SocketError != "":
		all = append(all, check(Fail, name, r.Resource, "%s takes no connections within %s: %s", brief(r.Endpoint), Time(r.Waited), r.SocketError))
	default:
		all = append(all, check(OK, name, r.Resource, "%s takes connections", brief(r.Endpoint)))
	}
	return all
}

func orError(name, resource, err, format string, args ...any) Check {
	if err != "" {
		return check(Fail, name, resource, "%s", err)
	}
	return check(OK, name, resource, format, args...)
}

// Asked is what GetDevicePluginOptions has come to.
type Asked struct {
	Call
	Options Options
	// Registered is nil when the plugin has not told its options before.
	Registered *Options
}

// OptionsOf judges the options.
func OptionsOf(resource string, a Asked) Check {
	const name = "register/options"
	switch {
	case a.Unknown:
		return check(Warn, name, resource, "GetDevicePluginOptions %s, as with old plugins; the registration's count: %s", a.Call, optionsOr(a.Registered))
	case a.Failed():
		return check(Fail, name, resource, "GetDevicePluginOptions %s; nodes do not use a plugin that does not tell", a.Call)
	case a.Registered != nil && *a.Registered != a.Options:
		return check(Fail, name, resource, "GetDevicePluginOptions says %s, and RegisterRequest.options said %s: nodes differ in which of the two they believe", a.Options, *a.Registered)
	}
	return check(OK, name, resource, "%s", a.Options)
}

func optionsOr(o *Options) string {
	if o == nil {
		return fmt.Sprint(Options{})
	}
	return o.String()
}
