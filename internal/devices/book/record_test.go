package book

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/answer"
)

const widget = "example.com/widget"

// The stored formats, as they must still be read when the code has moved on: change them only with a migration.
const (
	goldenRecord = `{"schema":2,"namespace":"default","name":"hello","containers":{` +
		`"init":{"role":"init","grants":{"example.com/widget":{"source":"cdi","devices":[{"name":"w1"}]}},"grantedAt":"2025-11-21T02:30:00.5Z"},` +
		`"main":{"role":"main","grants":{"example.com/widget":{"source":"device-plugin","devices":[{"name":"w1","nodes":["/dev/w1"]},{"name":"w0"}],` +
		`"answer":{"cdiDevices":["a.b/c=d"],"nodes":[{"hostPath":"/dev/w1","containerPath":"/dev/w","permissions":"rw"}],` +
		`"mounts":[{"hostPath":"/lib/w","containerPath":"/w","readOnly":true}],"envs":{"W":"1"},"annotations":{"w/x":"y"}},"boot":"b"}},` +
		`"grantedAt":"2025-11-21T02:30:01Z"}}}`
)

var goldenAt = time.Date(2025, 11, 21, 2, 30, 0, 500e6, time.UTC)

func TestTheStoredFormat(t *testing.T) {
	want := Record{Schema: 2, Namespace: "default", Name: "hello", Containers: map[string]Container{
		"init": {Role: alloc.Init, GrantedAt: goldenAt, Grants: map[string]Grant{widget: {Source: "cdi", Devices: []Device{{Name: "w1"}}}}},
		"main": {Role: alloc.Main, GrantedAt: goldenAt.Add(500 * time.Millisecond), Grants: map[string]Grant{widget: {
			Source: "device-plugin", Boot: "b", Devices: []Device{{Name: "w1", Nodes: []string{"/dev/w1"}}, {Name: "w0"}},
			Answer: &answer.Answer{CDIDevices: []string{"a.b/c=d"}, Nodes: []answer.Node{{HostPath: "/dev/w1", ContainerPath: "/dev/w", Permissions: "rw"}},
				Mounts: []answer.Mount{{HostPath: "/lib/w", ContainerPath: "/w", ReadOnly: true}}, Envs: map[string]string{"W": "1"}, Annotations: map[string]string{"w/x": "y"}},
		}}},
	}}
	var got Record
	if err := json.Unmarshal([]byte(goldenRecord), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v", got, err)
	}
	if raw, err := json.Marshal(want); err != nil || string(raw) != goldenRecord {
		t.Errorf("written as %s, %v", raw, err)
	}
	if err := json.Unmarshal([]byte(`{"schema":3}`), &got); err == nil {
		t.Error("a record of a newer version was read")
	}
}

// Every field of a stored record is exported and named, so that none is lost in silence.
func TestEveryStoredFieldIsSerializable(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[Record](), reflect.TypeFor[Container](), reflect.TypeFor[Grant](), reflect.TypeFor[Device](),
		reflect.TypeFor[answer.Answer](), reflect.TypeFor[answer.Node](), reflect.TypeFor[answer.Mount]()} {
		for i := range typ.NumField() {
			if f := typ.Field(i); !f.IsExported() || f.Tag.Get("json") == "" {
				t.Errorf("%s.%s is not stored", typ, f.Name)
			}
		}
	}
}
