// Package node is the composition root: the only package that knows every role. It makes each part from the
// configuration, joins them at their public seams (sockets, HTTPS, the executor's protocol) and runs them until the
// context ends.
//
// A part is a type that makes a role, a value that one runner opens, runs, closes and removes (role.go). Up, Runtime, APIServer, Agent and Reset say which roles
// there are, and in which order.
//
// Stopping leaves pods running: the executor holds them, and the next start finds them. With Options.Ephemeral a stop
// removes the pods and all that the node has made on the host.
package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"k8s.io/client-go/rest"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/agent"
	"monopod.dev/monopod/internal/kit/podstarts"
	"monopod.dev/monopod/internal/network/choice"
	"monopod.dev/monopod/internal/node/status"
)

// Options says what to run.
type Options struct {
	Config *v1alpha1.NodeConfiguration
	// Ephemeral: the directories must be new or empty, and a stop leaves nothing behind: no pod, no mount, no
	// namespace, no cgroup, no address, no rule, no file.
	Ephemeral bool
	// Version is Monopod's own version.
	Version string
	Log     *slog.Logger
	// OnReady is called once, when the node is ready for work.
	OnReady func()
}

// apiGarbageRoom is that of a process with an API server, where each request leaves 50 to 100 kB behind. Under load it takes up to so much more
// memory, and gives it back when that is over.
const apiGarbageRoom = 48 << 20

// cleanupTime bounds what is done after the context has ended.
const cleanupTime = 60 * time.Second

// Up runs the whole node: API server, controllers, DNS, devices, runtime and agent.
func Up(ctx context.Context, o Options) error {
	p := newProcess(o)
	p.garbageRoom, p.timeline, p.withAPI = apiGarbageRoom, podstarts.New(podstarts.Config{}), true
	names := &dnsRole{process: p}
	api := newAPIRole(p, names)
	applied, err := p.manifests(api, p.settled)
	if err != nil {
		return err
	}
	policies := &policiesRole{process: p, wanted: true, kube: api.controllersConfig, after: api.ready}
	rt := &runtimeRole{process: p, names: names, policies: policies, withAgent: true}
	dev := &devicesRole{process: p}
	volumes := &storageRole{process: p, kube: api.controllersConfig, after: api.ready}
	services := &proxyRole{process: p, kube: api.controllersConfig, after: api.ready, bridged: func(ctx context.Context) bool { return len(rt.network.Gateways(ctx)) > 0 }}
	down := newShutdown(o)
	own := &agentRole{process: p, names: names, devices: dev, down: down, world: func(ctx context.Context) (*agentWorld, error) { return api.agentWorld(ctx, rt, services) }}
	// Where the built-in network connects pods they reach the API at their gateways.
	gateways := role{name: "gateways", open: func(ctx context.Context) error { return api.server.Extend(ctx, rt.network.Gateways(ctx)) }}
	return p.do(ctx, work{
		parts: allParts,
		// The stores open side by side: etcd's first election is most of the way to a ready node.
		open: [][]role{{names.role()}, {api.role(), rt.role(), names.addressRole(), volumes.role()}, {gateways}, {dev.role()}, {services.role()}},
		run: []role{
			p.admin(func() status.Roles {
				return status.Roles{API: api.server, Runtime: rt.told(), Devices: dev.manager, DNS: names.told(), Storage: volumes.told(), Kube: api.nodeConfig, Agent: p.settled, Drain: newDrainer(o, down)}
			}),
			api.role(), rt.role(), api.controllers(p.settled, listener), applied, names.answers(api), services.role(), policies.role(), dev.role(), volumes.role(), own.role(),
		},
		remove: append(remains(p, rt), dev.role()),
	})
}

// Runtime runs the CRI runtime alone, for any kubelet. kube is the API server whose network policies are enforced on the built-in network; nil: none are.
func Runtime(ctx context.Context, o Options, kube *rest.Config) error {
	p := newProcess(o)
	policies := &policiesRole{process: p, wanted: kube != nil, kube: func() *rest.Config { return kube }}
	rt := &runtimeRole{process: p, names: &dnsRole{process: p}, policies: policies}
	return p.do(ctx, work{
		parts:  []part{partRuntime},
		open:   [][]role{{rt.role()}},
		run:    []role{p.admin(func() status.Roles { return status.Roles{Runtime: rt.told()} }), rt.role(), policies.role(), p.readyWith(rt.ready)},
		remove: remains(p, rt),
	})
}

// APIServer runs the API server and the controllers alone, for any client.
func APIServer(ctx context.Context, o Options) error {
	p := newProcess(o)
	p.garbageRoom, p.timeline = apiGarbageRoom, podstarts.New(podstarts.Config{})
	api := newAPIRole(p, &dnsRole{process: p})
	applied, err := p.manifests(api, nil)
	if err != nil {
		return err
	}
	return p.do(ctx, work{
		parts: []part{partAPIServer},
		open:  [][]role{{api.role()}},
		run: []role{
			p.admin(func() status.Roles { return status.Roles{API: api.server, Kube: api.server.AdminConfig} }), api.role(), api.controllers(nil, nil), applied, p.readyWith(api.ready),
		},
	})
}

// Credentials are what the agent needs to serve its own HTTPS API in another cluster.
type Credentials struct{ ServingCert, ServingKey, ClientCA string }

// Agent runs the agent and the devices alone, against any API server and any CRI runtime.
func Agent(ctx context.Context, o Options, kube *rest.Config, cred Credentials) error {
	p := newProcess(o)
	p.timeline = podstarts.New(podstarts.Config{})
	reach := func() *rest.Config { return kube }
	dev := &devicesRole{process: p}
	services := &proxyRole{process: p, kube: reach}
	down := newShutdown(o)
	var logs agent.Logs
	rotation := role{name: "agent", open: func(context.Context) (err error) { logs, err = agentLogs(&o.Config.Agent); return err }}
	own := &agentRole{process: p, names: &dnsRole{process: p}, devices: dev, down: down, world: func(context.Context) (*agentWorld, error) {
		return &agentWorld{kube: kube, cred: cred, logs: logs}, nil
	}}
	return p.do(ctx, work{
		parts: []part{partAgent},
		open:  [][]role{{rotation}, {dev.role()}, {services.role()}},
		run: []role{
			services.role(),
			p.admin(func() status.Roles {
				return status.Roles{Devices: dev.manager, Kube: reach, Agent: p.settled, Drain: newDrainer(o, down)}
			}),
			dev.role(), own.role(),
		},
		remove: []role{services.role()},
	})
}

// Reset removes all that a node with this configuration has made on the host: its pods, the executor, the network and
// the directories; volumes: the volumes of claims as well, with all that is in them, which stay otherwise. What else is among them stays in any case. The node
// itself must be stopped (its locks say so otherwise). It may be repeated.
func Reset(ctx context.Context, o Options, volumes bool) error {
	c := *o.Config
	o.Config, o.Ephemeral = &c, false // the directories need not be empty
	home := home{config: &c, resetting: true, keepVolumes: !volumes}
	unlock, err := home.enter(allParts...)
	if err != nil {
		return err
	}
	// Before anything is removed; leave locks them once more.
	free, err := lockVolumes(&c)
	if err != nil {
		unlock()
		return err
	}
	free()
	if networksAreAnothers(&c) {
		c.Network.Mode = choice.CNI // what that node's pods are connected by is none of ours
	}
	p := newProcess(o)
	rt := &runtimeRole{process: p, names: &dnsRole{process: p}, policies: &policiesRole{process: p}}
	opened, err := openAll(ctx, [][]role{{rt.role()}})
	if err == nil {
		err = removeAll(remains(p, rt))
	}
	if err = errors.Join(err, closeAll(opened)); err != nil {
		unlock()
		return err
	}
	home.ephemeral = true
	err = home.leave(unlock)
	for _, dir := range volumeDirs(&c) {
		if _, serr := os.Lstat(dir); serr == nil {
			p.Log.InfoContext(ctx, "a directory of volumes is not empty; what is in it stays", "directory", dir)
		}
	}
	return err
}

// remains are the roles that leave something on the host, in the order in which it goes.
func remains(p *process, rt *runtimeRole) []role {
	services := &proxyRole{process: p}
	cgroups := role{name: "cgroups", remove: func(context.Context) error { return removeCgroups(p.Options) }}
	return []role{rt.role(), (&storageRole{process: p}).role(), services.role(), rt.policies.role(), rt.names.role(), cgroups}
}
