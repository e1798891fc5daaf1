ARG BASE
FROM ${BASE}

RUN set -eux; \
    install -d -o mysql -g mysql -m 0755 /var/lib/mysql; \
    install -d -o mysql -g mysql -m 0755 /run/mysqld; \
    printf '[mariadbd]\nbind-address = *\nskip-name-resolve\n' > /etc/mysql/mariadb.conf.d/99-container.cnf

COPY entrypoint.sh /usr/local/bin/docker-entrypoint.sh

VOLUME /var/lib/mysql
EXPOSE 3306
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["mariadbd"]
