package ocispec

import (
	"math"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func idMap(container, host, length uint32) *cri.IDMapping {
	return &cri.IDMapping{ContainerId: container, HostId: host, Length: length}
}

// mappedUser is a user namespace as kubelets ask for it.
func mappedUser() *cri.UserNamespace {
	return &cri.UserNamespace{Uids: []*cri.IDMapping{idMap(0, 1<<16, 1<<16)}, Gids: []*cri.IDMapping{idMap(0, 2<<16, 1<<16)}}
}

// giveUser gives the sandbox and the container a user namespace.
func giveUser(in *Input) {
	in.Sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions = mappedUser()
	security(in).NamespaceOptions.UsernsOptions = mappedUser()
	in.Namespaces.User = "/run/monopod/sandboxes/s1/ns/user"
}

func TestSandboxUserNamespace(t *testing.T) {
	user := func(change func(*cri.UserNamespace)) func(*Input) {
		return func(in *Input) {
			u := mappedUser()
			change(u)
			in.Sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions = u
		}
	}
	with := func(change func(*cri.NamespaceOption)) func(*Input) {
		return func(in *Input) {
			giveUser(in)
			change(in.Sandbox.Linux.SecurityContext.NamespaceOptions)
		}
	}
	for _, c := range []struct {
		name, class, contains string
		change                func(*Input)
	}{
		{"none", "", "", func(*Input) {}},
		{"mapped", "", "", giveUser},
		{"the last id", "", "", user(func(u *cri.UserNamespace) { u.Uids[0] = idMap(0, math.MaxUint32-5, 5) })},
		{"a kernel that cannot", "host", "userns_options: this host cannot give a pod a user namespace: too old", func(in *Input) {
			giveUser(in)
			in.Host.NoUserNamespaces = "too old"
		}},
		{"a kernel that need not", "", "", func(in *Input) { in.Host.NoUserNamespaces = "too old" }},
		{"nothing mapped", "invalid", "userns_options.uids: 0 mappings", func(in *Input) {
			in.Sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{}
		}},
		{"no groups", "invalid", "userns_options.gids: 0 mappings", user(func(u *cri.UserNamespace) { u.Gids = nil })},
		{"two mappings", "invalid", "userns_options.uids: 2 mappings", user(func(u *cri.UserNamespace) { u.Uids = append(u.Uids, idMap(9, 9, 9)) })},
		{"no root", "invalid", "userns_options.gids[0].container_id: 1", user(func(u *cri.UserNamespace) { u.Gids[0].ContainerId = 1 })},
		{"no length", "invalid", "userns_options.uids[0].length", user(func(u *cri.UserNamespace) { u.Uids[0].Length = 0 })},
		{"too long", "invalid", "userns_options.uids[0].host_id", user(func(u *cri.UserNamespace) { u.Uids[0] = idMap(0, math.MaxUint32-5, 6) })},
		{"nil mapping", "invalid", "userns_options.uids[0].length", user(func(u *cri.UserNamespace) { u.Uids[0] = nil })},
		{"NODE with mappings", "invalid", "userns_options", user(func(u *cri.UserNamespace) { u.Mode = cri.NamespaceMode_NODE })},
		{"NODE", "", "", user(func(u *cri.UserNamespace) { *u = cri.UserNamespace{Mode: cri.NamespaceMode_NODE} })},
		{"CONTAINER", "invalid", "userns_options.mode: CONTAINER", user(func(u *cri.UserNamespace) { u.Mode = cri.NamespaceMode_CONTAINER })},
		{"the host's network", "invalid", "namespace_options.network: NODE", with(func(o *cri.NamespaceOption) { o.Network = cri.NamespaceMode_NODE })},
		{"the host's processes", "invalid", "namespace_options.pid: NODE", with(func(o *cri.NamespaceOption) { o.Pid = cri.NamespaceMode_NODE })},
		{"the host's IPC", "invalid", "namespace_options.ipc: NODE", with(func(o *cri.NamespaceOption) { o.Ipc = cri.NamespaceMode_NODE })},
	} {
		in := testInput()
		in.Sandbox.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
		security(&in).NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
		c.change(&in)
		expect(t, c.name, ValidateSandbox(in.Sandbox, in.Host), c.class, c.contains)
	}
}

func TestContainerUserNamespace(t *testing.T) {
	mount := func(uids, gids []*cri.IDMapping) func(*Input) {
		return func(in *Input) {
			giveUser(in)
			in.Container.Mounts = []*cri.Mount{{ContainerPath: "/a", HostPath: "/a", UidMappings: uids, GidMappings: gids}}
		}
	}
	one := []*cri.IDMapping{idMap(0, 5, 10)}
	for _, c := range []struct {
		name, class, contains string
		change                func(*Input)
	}{
		{"the sandbox's", "", "", giveUser},
		{"says nothing", "", "", func(in *Input) {
			giveUser(in)
			security(in).NamespaceOptions.UsernsOptions = nil
		}},
		{"none and NODE", "", "", func(in *Input) {
			security(in).NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_NODE}
		}},
		{"NODE", "invalid", "userns_options: NODE, while the sandbox has", func(in *Input) {
			giveUser(in)
			security(in).NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_NODE}
		}},
		{"of its own", "invalid", "userns_options: POD, while the sandbox has the host's", func(in *Input) {
			security(in).NamespaceOptions.UsernsOptions = mappedUser()
		}},
		{"another", "invalid", "uids 0:65536:65535", func(in *Input) {
			giveUser(in)
			security(in).NamespaceOptions.UsernsOptions.Uids[0].Length--
		}},
		{"other groups", "invalid", "gids 0:9:65536", func(in *Input) {
			giveUser(in)
			security(in).NamespaceOptions.UsernsOptions.Gids[0].HostId = 9
		}},
		{"mount", "", "", mount(one, one)},
		{"mount of two", "", "", mount([]*cri.IDMapping{idMap(0, 5, 10), idMap(10, 20, 1)}, one)},
		{"mount without uids", "invalid", "mounts[/a].uidMappings: missing", mount(nil, one)},
		{"mount without gids", "invalid", "mounts[/a].gidMappings: missing", mount(one, nil)},
		{"mount of no length", "invalid", "mounts[/a].gidMappings[0].length", mount(one, []*cri.IDMapping{{}})},
		{"mount that overlaps", "invalid", "mounts[/a].uidMappings: the mappings 0:5:10 and 9:20:1 overlap (container_id)", mount([]*cri.IDMapping{idMap(9, 20, 1), idMap(0, 5, 10)}, one)},
		{"mount that overlaps on the host", "invalid", "overlap (host_id)", mount([]*cri.IDMapping{idMap(0, 5, 10), idMap(10, 14, 1)}, one)},
		{"image without root", "invalid", "mounts[/a].gidMappings: id 0", func(in *Input) {
			mount(one, []*cri.IDMapping{idMap(1, 5, 10)})(in)
			in.Container.Mounts[0].HostPath, in.Container.Mounts[0].Image = "", &cri.ImageSpec{Image: "i"}
		}},
		{"mount, host's user namespace", "invalid", "mounts[/a].uidMappings: the sandbox has the host's", func(in *Input) {
			in.Container.Mounts = []*cri.Mount{{ContainerPath: "/a", HostPath: "/a", UidMappings: one, GidMappings: one}}
		}},
	} {
		in := testInput()
		in.Sandbox.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
		security(&in).NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
		c.change(&in)
		expect(t, c.name, Validate(in.Sandbox, in.Container, in.Host), c.class, c.contains)
	}
}

func TestBuildUserNamespace(t *testing.T) {
	prepare := func() Input {
		in := testInput()
		in.Sandbox.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
		security(&in).NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
		giveUser(&in)
		return in
	}
	in := prepare()
	u := mappedUser()
	addMount(&in, &cri.Mount{ContainerPath: "/vol", HostPath: "/vol", UidMappings: u.Uids, GidMappings: u.Gids})
	addMount(&in, &cri.Mount{ContainerPath: "/plain", HostPath: "/plain"})
	addMount(&in, &cri.Mount{ContainerPath: "/image", Image: &cri.ImageSpec{Image: "i"}, UidMappings: u.Uids, GidMappings: u.Gids})
	in.Mounts[2].Source = "/run/image"
	spec, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace, Path: in.Namespaces.User}) {
		t.Errorf("namespaces %v", spec.Linux.Namespaces)
	}
	uids, gids := []specs.LinuxIDMapping{{HostID: 1 << 16, Size: 1 << 16}}, []specs.LinuxIDMapping{{HostID: 2 << 16, Size: 1 << 16}}
	if !slices.Equal(spec.Linux.UIDMappings, uids) || !slices.Equal(spec.Linux.GIDMappings, gids) {
		t.Errorf("mappings %v and %v", spec.Linux.UIDMappings, spec.Linux.GIDMappings)
	}
	for _, m := range spec.Mounts {
		switch m.Destination {
		case "/vol":
			if !slices.Equal(m.UIDMappings, uids) || !slices.Equal(m.GIDMappings, gids) {
				t.Errorf("%+v", m)
			}
		case "/dev/pts":
			if !slices.Contains(m.Options, "gid=5") {
				t.Errorf("%+v", m)
			}
		default:
			if len(m.UIDMappings)+len(m.GIDMappings) > 0 {
				t.Errorf("%+v", m)
			}
		}
	}

	// Group 5 cannot own terminals where it does not exist.
	in = prepare()
	in.Sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions.Gids[0].Length = 5
	security(&in).NamespaceOptions.UsernsOptions.Gids[0].Length = 5
	if spec, err = Build(in); err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Mounts {
		if m.Destination == "/dev/pts" && slices.Contains(m.Options, "gid=5") {
			t.Errorf("%+v", m)
		}
	}

	for name, c := range map[string]struct {
		change          func(*Input)
		class, contains string
	}{
		"user":   {func(in *Input) { in.User.UID = 1 << 16 }, "invalid", "run_as_user: 65536"},
		"group":  {func(in *Input) { in.User.GID = 1 << 16 }, "invalid", "run_as_group: 65536"},
		"groups": {func(in *Input) { in.User.AdditionalGids = []uint32{5, 70000} }, "invalid", "supplemental_groups: 70000"},
	} {
		in := prepare()
		c.change(&in)
		_, err := Build(in)
		expect(t, name, err, c.class, c.contains)
	}
	in = prepare()
	in.Namespaces.User = ""
	if _, err := Build(in); err == nil {
		t.Error("built without the path of the user namespace")
	}
}
