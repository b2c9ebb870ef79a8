package node

import (
	"context"
	"path/filepath"

	"monopod.dev/monopod/internal/admin"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/node/copies"
	"monopod.dev/monopod/internal/node/status"
)

// socketName is the name of this process's administration socket: processes that run roles of one node beside each other have one each.
func socketName(r *status.Roles) string {
	switch {
	case r.Agent != nil:
		return protocol.SocketName
	case r.API != nil:
		return protocol.APIServerSocketName
	}
	return protocol.RuntimeSocketName
}

// admin is the role that serves the administration socket, which tells of the roles that are open.
func (p *process) admin(of func() status.Roles) role {
	return role{name: "admin", run: func(ctx context.Context) error {
		c, roles := p.Config, of()
		t := status.New(status.Config{
			Node: c.NodeName, Version: p.Version, DataDir: c.DataDir, RunDir: c.RunDir, PodLogsDir: c.Agent.PodLogsDir, Roles: roles, Timeline: p.timeline,
		})
		cfg := admin.Config{Socket: filepath.Join(c.RunDir, socketName(&roles)), Status: t.Status, Devices: roles.Devices, Drain: roles.Drain, Log: p.Log.With("role", "admin")}
		if p.timeline != nil {
			cfg.Trace = t.Trace
		}
		if roles.Storage != nil {
			cfg.Volumes = t.Volumes
			cfg.Copies = copies.Of(roles.Storage)
		}
		s, err := admin.New(cfg)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}}
}
