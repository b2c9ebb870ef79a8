package controllers

import (
	"context"
	"log/slog"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/controllers/accounttokens"
	"monopod.dev/monopod/internal/controllers/aggregate"
	"monopod.dev/monopod/internal/controllers/autoscaler"
	"monopod.dev/monopod/internal/controllers/binder"
	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/internal/controllers/certificates"
	"monopod.dev/monopod/internal/controllers/cronjob"
	"monopod.dev/monopod/internal/controllers/daemonset"
	"monopod.dev/monopod/internal/controllers/deployment"
	"monopod.dev/monopod/internal/controllers/disruption"
	"monopod.dev/monopod/internal/controllers/endpoints"
	"monopod.dev/monopod/internal/controllers/ephemeralvolume"
	"monopod.dev/monopod/internal/controllers/garbage"
	"monopod.dev/monopod/internal/controllers/ingresses"
	"monopod.dev/monopod/internal/controllers/job"
	"monopod.dev/monopod/internal/controllers/namespace"
	"monopod.dev/monopod/internal/controllers/nodelifecycle"
	"monopod.dev/monopod/internal/controllers/podcertificates"
	"monopod.dev/monopod/internal/controllers/podgc"
	"monopod.dev/monopod/internal/controllers/replicas"
	"monopod.dev/monopod/internal/controllers/rootca"
	"monopod.dev/monopod/internal/controllers/serviceaccount"
	"monopod.dev/monopod/internal/controllers/servicecidr"
	"monopod.dev/monopod/internal/controllers/servicelb"
	"monopod.dev/monopod/internal/controllers/statefulset"
	"monopod.dev/monopod/internal/controllers/tainteviction"
	"monopod.dev/monopod/internal/controllers/trustbundles"
	"monopod.dev/monopod/internal/controllers/ttl"
	"monopod.dev/monopod/internal/controllers/volumebinding"
	"monopod.dev/monopod/internal/controllers/volumeprotection"
)

// factory makes a controller of the catalog, which does nothing until it is run.
type factory func(s *shared, log *slog.Logger) (runner, error)

// factories are those of all rows of the catalog, by name.
func factories() map[string]factory {
	all := map[string]factory{}
	for _, some := range []map[string]factory{ofNodes(), ofTheCluster(), ofWorkloads(), ofServices(), ofVolumes()} {
		maps.Copy(all, some)
	}
	return all
}

// ofNodes are those of nodes, and of what is on them.
func ofNodes() map[string]factory {
	return map[string]factory{
		catalog.Binder: func(s *shared, log *slog.Logger) (runner, error) {
			core := s.informers.Core().V1()
			return binder.New(binder.Config{
				Client: s.client, Pods: core.Pods(), Nodes: core.Nodes(), Namespaces: core.Namespaces(),
				Claims: core.PersistentVolumeClaims(), Volumes: core.PersistentVolumes(), Classes: s.informers.Storage().V1().StorageClasses(),
				OwnPorts: s.ownPorts, Events: s.recorder(corev1.DefaultSchedulerName), Log: log,
			})
		},
		catalog.NodeLifecycle: func(s *shared, log *slog.Logger) (runner, error) {
			return nodelifecycle.New(nodelifecycle.Config{
				Client: s.client, Nodes: s.informers.Core().V1().Nodes(), Pods: s.informers.Core().V1().Pods(), Events: s.recorder("node-controller"), Log: log,
			})
		},
		catalog.TaintEviction: func(s *shared, log *slog.Logger) (runner, error) {
			return tainteviction.New(tainteviction.Config{
				Client: s.client, Nodes: s.informers.Core().V1().Nodes(), Pods: s.informers.Core().V1().Pods(), Events: s.recorder("taint-eviction-controller"), Log: log,
			})
		},
		catalog.PodGC: func(s *shared, log *slog.Logger) (runner, error) {
			return podgc.New(podgc.Config{Client: s.client, Nodes: s.informers.Core().V1().Nodes(), Pods: s.informers.Core().V1().Pods(), Log: log})
		},
	}
}

// ofVolumes are those of volumes and claims.
func ofVolumes() map[string]factory {
	return map[string]factory{
		catalog.VolumeBinding: func(s *shared, log *slog.Logger) (runner, error) {
			core := s.informers.Core().V1()
			return volumebinding.New(volumebinding.Config{
				Client: s.client, Claims: core.PersistentVolumeClaims(), Volumes: core.PersistentVolumes(), Pods: core.Pods(),
				Classes: s.informers.Storage().V1().StorageClasses(), Events: s.recorder("persistentvolume-controller"), Log: log,
			})
		},
		catalog.ClaimProtection: func(s *shared, log *slog.Logger) (runner, error) {
			return volumeprotection.NewClaims(volumeprotection.ClaimsConfig{
				Client: s.client, Claims: s.informers.Core().V1().PersistentVolumeClaims(), Pods: s.informers.Core().V1().Pods(), Log: log,
			})
		},
		catalog.EphemeralVolume: func(s *shared, log *slog.Logger) (runner, error) {
			return ephemeralvolume.New(ephemeralvolume.Config{
				Client: s.client, Pods: s.informers.Core().V1().Pods(), Claims: s.informers.Core().V1().PersistentVolumeClaims(), Events: s.recorder("ephemeral_volume"), Log: log,
			})
		},
		catalog.VolumeProtection: func(s *shared, log *slog.Logger) (runner, error) {
			return volumeprotection.NewVolumes(volumeprotection.VolumesConfig{Client: s.client, Volumes: s.informers.Core().V1().PersistentVolumes(), Log: log})
		},
		catalog.AttributesProtection: func(s *shared, log *slog.Logger) (runner, error) {
			core := s.informers.Core().V1()
			return volumeprotection.NewAttributes(volumeprotection.AttributesConfig{
				Client: s.client, Classes: s.informers.Storage().V1().VolumeAttributesClasses(), Claims: core.PersistentVolumeClaims(), Volumes: core.PersistentVolumes(), Log: log,
			})
		},
	}
}

// ofTheCluster are those of what is in every namespace, and of objects of any kind.
func ofTheCluster() map[string]factory {
	return map[string]factory{
		catalog.ServiceAccount: func(s *shared, log *slog.Logger) (runner, error) {
			s.informers.Core().V1().Namespaces().Informer() // so that it is started with the others
			return serviceaccount.New(serviceaccount.Config{Client: s.client, Namespaces: s.informers.Core().V1().Namespaces(), Log: log}), nil
		},
		catalog.AccountTokens: func(s *shared, log *slog.Logger) (runner, error) {
			if s.tokens == nil {
				return idle{}, nil
			}
			return accounttokens.New(accounttokens.Config{
				Client: s.client, Issuer: s.tokens, Accounts: s.informers.Core().V1().ServiceAccounts(), CA: s.ca, Log: log,
			})
		},
		catalog.RootCA: func(s *shared, log *slog.Logger) (runner, error) {
			s.informers.Core().V1().Namespaces().Informer()
			return rootca.New(rootca.Config{Client: s.client, Namespaces: s.informers.Core().V1().Namespaces(), CA: s.ca, Log: log}), nil
		},
		catalog.Namespace: func(s *shared, log *slog.Logger) (runner, error) {
			return namespace.New(namespace.Config{
				Client: s.client, Metadata: s.metadata, Discovery: s.discovery, Namespaces: s.informers.Core().V1().Namespaces(), Log: log,
			})
		},
		catalog.GarbageCollector: func(s *shared, log *slog.Logger) (runner, error) {
			return garbage.New(garbage.Config{
				Metadata: s.metadata, Discovery: s.discovery, Events: s.recorder("garbage-collector-controller"), Log: log,
			}), nil
		},
		catalog.Certificates: func(s *shared, log *slog.Logger) (runner, error) {
			if s.authority == nil {
				return idle{}, nil
			}
			return certificates.New(certificates.Config{
				Client: s.client, Requests: s.informers.Certificates().V1().CertificateSigningRequests(), Authority: s.authority, Log: log,
			})
		},
		catalog.PodCertificates: func(s *shared, log *slog.Logger) (runner, error) {
			certificates := s.informers.Certificates().V1()
			return podcertificates.New(podcertificates.Config{
				Client: s.client, Requests: certificates.PodCertificateRequests(), Bundles: certificates.ClusterTrustBundles(), Domain: s.domain, Log: log,
			})
		},
		catalog.TrustBundles: func(s *shared, log *slog.Logger) (runner, error) {
			return trustbundles.New(trustbundles.Config{
				Client: s.client, Bundles: s.informers.Certificates().V1().ClusterTrustBundles(), Signer: trustbundles.ServingSigner,
				Authorities: func(context.Context) ([]byte, error) { return s.ca, nil }, Log: log,
			})
		},
		catalog.Aggregation: func(s *shared, log *slog.Logger) (runner, error) {
			return aggregate.New(aggregate.Config{Client: s.client.RbacV1(), ClusterRoles: s.informers.Rbac().V1().ClusterRoles(), Log: log})
		},
	}
}

// ofWorkloads are those of the objects that say how many pods there are.
func ofWorkloads() map[string]factory {
	return map[string]factory{
		catalog.Deployment: func(s *shared, log *slog.Logger) (runner, error) {
			apps := s.informers.Apps().V1()
			return deployment.New(deployment.Config{
				Client: s.client, Deployments: apps.Deployments(), Sets: apps.ReplicaSets(), Pods: s.informers.Core().V1().Pods(), Events: s.recorder("deployment-controller"), Log: log,
			})
		},
		catalog.ReplicaSet: func(s *shared, log *slog.Logger) (runner, error) {
			config := replicas.Config{
				Client: s.client, Pods: s.informers.Core().V1().Pods(), Events: s.recorder("replicaset-controller"), Pace: s.pace, Log: log,
			}
			return replicas.ForReplicaSets(config, s.informers.Apps().V1().ReplicaSets())
		},
		catalog.Replication: func(s *shared, log *slog.Logger) (runner, error) {
			config := replicas.Config{
				Client: s.client, Pods: s.informers.Core().V1().Pods(), Events: s.recorder("replication-controller"), Pace: s.pace, Log: log,
			}
			return replicas.ForReplicationControllers(config, s.informers.Core().V1().ReplicationControllers())
		},
		catalog.StatefulSet: func(s *shared, log *slog.Logger) (runner, error) {
			apps := s.informers.Apps().V1()
			return statefulset.New(statefulset.Config{
				Client: s.client, Sets: apps.StatefulSets(), Pods: s.informers.Core().V1().Pods(), Revisions: apps.ControllerRevisions(),
				Claims: s.informers.Core().V1().PersistentVolumeClaims(), Events: s.recorder("statefulset-controller"), Pace: s.pace, Log: log,
			})
		},
		catalog.DaemonSet: func(s *shared, log *slog.Logger) (runner, error) {
			apps := s.informers.Apps().V1()
			return daemonset.New(daemonset.Config{
				Client: s.client, Sets: apps.DaemonSets(), Pods: s.informers.Core().V1().Pods(), Nodes: s.informers.Core().V1().Nodes(), Revisions: apps.ControllerRevisions(),
				Events: s.recorder("daemonset-controller"), Pace: s.pace, Log: log,
			})
		},
		catalog.Job: func(s *shared, log *slog.Logger) (runner, error) {
			return job.New(job.Config{
				Client: s.client, Jobs: s.informers.Batch().V1().Jobs(), Pods: s.informers.Core().V1().Pods(), Events: s.recorder("job-controller"), Pace: s.pace, Log: log,
			})
		},
		catalog.TTLAfterFinished: func(s *shared, log *slog.Logger) (runner, error) {
			return ttl.New(ttl.Config{Client: s.client, Jobs: s.informers.Batch().V1().Jobs(), Log: log})
		},
		catalog.CronJob: func(s *shared, log *slog.Logger) (runner, error) {
			batch := s.informers.Batch().V1()
			return cronjob.New(cronjob.Config{Client: s.client, CronJobs: batch.CronJobs(), Jobs: batch.Jobs(), Events: s.recorder("cronjob-controller"), Log: log})
		},
		catalog.Disruption: func(s *shared, log *slog.Logger) (runner, error) {
			apps, core := s.informers.Apps().V1(), s.informers.Core().V1()
			return disruption.New(disruption.Config{
				Client: s.client, Budgets: s.informers.Policy().V1().PodDisruptionBudgets(), Pods: core.Pods(), Deployments: apps.Deployments(), Sets: apps.ReplicaSets(),
				Stateful: apps.StatefulSets(), Controllers: core.ReplicationControllers(), Scales: s.scales, Events: s.recorder("controllermanager"), Log: log,
			})
		},
		catalog.Autoscaler: func(s *shared, log *slog.Logger) (runner, error) {
			return autoscaler.New(autoscaler.Config{
				Client: s.client, Autoscalers: s.informers.Autoscaling().V2().HorizontalPodAutoscalers(), Pods: s.informers.Core().V1().Pods(),
				Scales: s.scales, Metrics: s.metrics, Events: s.recorder("horizontal-pod-autoscaler"), Log: log,
			})
		},
	}
}

// ofServices are those of services, and of what leads to them.
func ofServices() map[string]factory {
	return map[string]factory{
		catalog.Endpoints: func(s *shared, log *slog.Logger) (runner, error) {
			return endpoints.New(endpoints.Config{Kube: s.client, Informers: s.informers, Events: s.recorder("endpoint-controller"), Log: log})
		},
		catalog.ServiceLB: func(s *shared, log *slog.Logger) (runner, error) {
			core := s.informers.Core().V1()
			return servicelb.New(servicelb.Config{
				Client: s.client, Services: core.Services(), Nodes: core.Nodes(), Pods: core.Pods(), Listens: s.listens, Ranges: s.balancers,
				Events: s.recorder("service-controller"), Log: log,
			})
		},
		catalog.ServiceCIDR: func(s *shared, log *slog.Logger) (runner, error) {
			networking := s.informers.Networking().V1()
			return servicecidr.New(servicecidr.Config{Client: s.client, Ranges: networking.ServiceCIDRs(), Addresses: networking.IPAddresses(), Log: log})
		},
		catalog.IngressClass: func(s *shared, log *slog.Logger) (runner, error) {
			networking := s.informers.Networking().V1()
			return ingresses.New(ingresses.Config{Ingresses: networking.Ingresses(), Classes: networking.IngressClasses(), Events: s.recorder("ingress-class-controller"), Log: log})
		},
	}
}
