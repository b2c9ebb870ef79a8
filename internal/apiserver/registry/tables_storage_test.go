package registry_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/csidriver"
	"monopod.dev/monopod/internal/apiserver/registry/csinode"
	"monopod.dev/monopod/internal/apiserver/registry/csistoragecapacity"
	"monopod.dev/monopod/internal/apiserver/registry/storageclass"
	"monopod.dev/monopod/internal/apiserver/registry/volumeattachment"
	"monopod.dev/monopod/internal/apiserver/registry/volumeattributesclass"
)

func TestTablesOfStorage(t *testing.T) {
	born := metav1.NewTime(time.Now().Add(-3*time.Hour - time.Second))
	meta := metav1.ObjectMeta{Name: "x", CreationTimestamp: born}
	class := func(name string, age time.Duration, marked string) storagev1.StorageClass {
		c := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(born.Add(-age))}, Provisioner: "a.b/c"}
		if marked != "" {
			c.Annotations = map[string]string{marked: "true"}
		}
		return c
	}
	const stable, beta = "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"
	whole := class("whole", 0, "")
	whole.ReclaimPolicy, whole.VolumeBindingMode, whole.AllowVolumeExpansion =
		new(corev1.PersistentVolumeReclaimRetain), new(storagev1.VolumeBindingWaitForFirstConsumer), new(true)
	one := class("one", 0, stable)
	const classes = "NAME|PROVISIONER|RECLAIMPOLICY|VOLUMEBINDINGMODE|ALLOWVOLUMEEXPANSION|AGE\n"
	size := resource.MustParse("1Gi")
	for _, tc := range []struct {
		name      string
		convertor rest.TableConvertor
		obj       runtime.Object
		want      string
	}{
		{"classes", storageclass.Resource().Table(), &storagev1.StorageClassList{Items: []storagev1.StorageClass{
			class("old", 2*time.Hour, stable), class("b", time.Hour, beta), class("a", time.Hour, stable), class("none", 0, ""), whole,
		}}, classes + "old|a.b/c|Delete|Immediate|false|5h\nb|a.b/c|Delete|Immediate|false|4h\na (default)|a.b/c|Delete|Immediate|false|4h\n" +
			"none|a.b/c|Delete|Immediate|false|3h\nwhole|a.b/c|Retain|WaitForFirstConsumer|true|3h"},
		// By itself, nobody knows whether there is a newer one.
		{"class", storageclass.Resource().Table(), &one, classes + "one|a.b/c|Delete|Immediate|false|3h"},
		{"attributes", volumeattributesclass.Resource().Table(), &storagev1.VolumeAttributesClass{ObjectMeta: meta, DriverName: "a.b"}, "NAME|DRIVERNAME|AGE\nx|a.b|3h"},
		{"drivers", csidriver.Resource().Table(), &storagev1.CSIDriverList{Items: []storagev1.CSIDriver{
			{ObjectMeta: meta},
			{ObjectMeta: meta, Spec: storagev1.CSIDriverSpec{AttachRequired: new(false), PodInfoOnMount: new(true), StorageCapacity: new(true), RequiresRepublish: new(true),
				TokenRequests: []storagev1.TokenRequest{{Audience: "a"}, {Audience: "b"}}, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{"Persistent", "Ephemeral"}}},
		}}, "NAME|ATTACHREQUIRED|PODINFOONMOUNT|STORAGECAPACITY|TOKENREQUESTS|REQUIRESREPUBLISH|MODES|AGE\nx|true|false|false|<unset>|false|<none>|3h\n" +
			"x|false|true|true|a,b|true|Persistent,Ephemeral|3h"},
		{"node", csinode.Resource().Table(), &storagev1.CSINode{ObjectMeta: meta, Spec: storagev1.CSINodeSpec{Drivers: make([]storagev1.CSINodeDriver, 2)}}, "NAME|DRIVERS|AGE\nx|2|3h"},
		{"room", csistoragecapacity.Resource().Table(), &storagev1.CSIStorageCapacityList{Items: []storagev1.CSIStorageCapacity{
			{ObjectMeta: meta, StorageClassName: "c"}, {ObjectMeta: meta, StorageClassName: "c", Capacity: &size},
		}}, "NAME|STORAGECLASSNAME|CAPACITY\nx|c|<unset>\nx|c|1Gi"},
		{"attachments", volumeattachment.Resource().Table(), &storagev1.VolumeAttachmentList{Items: []storagev1.VolumeAttachment{
			{ObjectMeta: meta, Spec: storagev1.VolumeAttachmentSpec{Attacher: "a.b", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("v")}},
				Status: storagev1.VolumeAttachmentStatus{Attached: true}},
			{ObjectMeta: meta, Spec: storagev1.VolumeAttachmentSpec{Attacher: "a.b", NodeName: "n"}},
		}}, "NAME|ATTACHER|PV|NODE|ATTACHED|AGE\nx|a.b|v|n|true|3h\nx|a.b||n|false|3h"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := render(t, tc.convertor, tc.obj, false); got != tc.want {
				t.Errorf("table:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}
