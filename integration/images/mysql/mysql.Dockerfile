# MySQL itself, which Debian has in its rolling suite only. ROOTFS is a minimal one of
# that suite, imported by build.sh.
ARG ROOTFS
FROM ${ROOTFS}

ENV LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive

# policy-rc.d keeps the package from starting a server.
RUN set -eux; \
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d; \
    chmod +x /usr/sbin/policy-rc.d; \
    apt-get -o Acquire::Check-Valid-Until=false update; \
    apt-get install -y --no-install-recommends mysql-server mysql-client; \
    apt-get clean; \
    rm -rf /var/lib/apt/lists/* /var/lib/mysql; \
    install -d -o mysql -g mysql -m 0755 /var/lib/mysql /run/mysqld; \
    printf '[mysqld]\nbind-address = *\nskip-name-resolve\nmysqlx = OFF\n' > /etc/mysql/mysql.conf.d/mysqld.cnf; \
    mkdir /docker-entrypoint-initdb.d

COPY entrypoint.sh /usr/local/bin/docker-entrypoint.sh

VOLUME /var/lib/mysql
EXPOSE 3306
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["mysqld"]
