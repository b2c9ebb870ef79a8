package devices

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// The stored format, as it must still be read when the code has moved on: change it only with a migration.
const goldenRecord = `{"namespace":"default","name":"hello","containers":{` +
	`"init":{"devices":{"example.com/widget":["w1"]},"init":true,"grantedAt":"2025-11-21T02:30:00.5Z"},` +
	`"main":{"devices":{"example.com/widget":["w1","w0"]},"grantedAt":"2025-11-21T02:30:01Z"}}}`

func TestTheStoredFormat(t *testing.T) {
	at := time.Date(2025, 11, 21, 2, 30, 0, 500e6, time.UTC)
	want := podRecord{Namespace: "default", Name: "hello", Containers: map[string]containerRecord{
		"init": {Devices: map[string][]string{"example.com/widget": {"w1"}}, Init: true, GrantedAt: at},
		"main": {Devices: map[string][]string{"example.com/widget": {"w1", "w0"}}, GrantedAt: at.Add(500 * time.Millisecond)},
	}}
	var got podRecord
	if err := json.Unmarshal([]byte(goldenRecord), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v, %v", got, err)
	}
	if raw, err := json.Marshal(want); err != nil || string(raw) != goldenRecord {
		t.Errorf("written as %s, %v", raw, err)
	}
}

// Every field of a stored record is exported and named, so that none is lost in silence.
func TestEveryStoredFieldIsSerializable(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[podRecord](), reflect.TypeFor[containerRecord]()} {
		for i := range typ.NumField() {
			if f := typ.Field(i); !f.IsExported() || f.Tag.Get("json") == "" {
				t.Errorf("%s.%s is not stored", typ, f.Name)
			}
		}
	}
}
