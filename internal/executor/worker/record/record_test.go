//go:build cgo

package record

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod.dev/monopod/internal/executor/journal"
)

// What is stored comes back: each field of the records survives encoding.
func TestRecordsAreSerializable(t *testing.T) {
	for _, v := range []any{&Record{}, &journal.Exit{}} {
		fill(t, reflect.ValueOf(v).Elem(), 1)
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(v).Elem())
		if err := json.Unmarshal(raw, back.Interface()); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(v, back.Interface()) {
			t.Errorf("%T: %+v came back, want %+v", v, back.Interface(), v)
		}
	}
}

// fill sets every field to something that is not zero.
func fill(t *testing.T, v reflect.Value, n int64) {
	t.Helper()
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(n, n).UTC()))
		return
	}
	if v.Type() == reflect.TypeFor[specs.LinuxResources]() { // made to be stored, by others
		v.Set(reflect.ValueOf(specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "1"}, HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}}}))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				t.Fatalf("%s.%s is not exported: it would not be stored", v.Type(), v.Type().Field(i).Name)
			}
			fill(t, v.Field(i), n+int64(i)+1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.String:
		v.SetString("s" + time.Duration(n).String())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(n)
	case reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Map:
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, n)
		fill(t, elem, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, elem)
	default:
		t.Fatalf("a field of kind %s: teach this test, and think whether it can be stored", v.Kind())
	}
}
